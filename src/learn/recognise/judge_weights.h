/* judge_weights.h - the weights of the judge, made by tools/train_judge.py. */
#ifndef RVI_LEARN_RECOGNISE_JUDGE_WEIGHTS_H
#define RVI_LEARN_RECOGNISE_JUDGE_WEIGHTS_H

#include <stdint.h>

#include "learn/recognise/embedder.h"

enum {
    RVI_JUDGE_WORD = 17,   /* features of a word */
    RVI_JUDGE_WHOLE = 14,  /* features of the two texts */
    RVI_JUDGE_SEEN = 48,   /* what is made of a word's */
    RVI_JUDGE_HIDDEN = 32, /* what is made of everything */
    RVI_JUDGE_RARITIES = 4096,
};

typedef struct rvi_judge_weights {
    /* the last row of `word`: 1 for words of the request, 0 for those of the lesson */
    float word[RVI_JUDGE_WORD + 1][RVI_JUDGE_SEEN], word_bias[RVI_JUDGE_SEEN];
    float hidden[6 * RVI_JUDGE_SEEN + RVI_JUDGE_WHOLE][RVI_JUDGE_HIDDEN];
    float hidden_bias[RVI_JUDGE_HIDDEN];
    float out[RVI_JUDGE_HIDDEN], out_whole[RVI_JUDGE_WHOLE], out_bias;
    float sure; /* the probability from which on a lesson is spoken */
} rvi_judge_weights;

extern const rvi_judge_weights rvi_judge_embedded, rvi_judge_spelled;

/* How rare words are in questions, by their hash: 0 to 255. */
extern const uint8_t rvi_judge_rarity[RVI_JUDGE_RARITIES];

/* The mean of the embedder's states, and 1 / their deviation. */
extern const float rvi_judge_middle_mean[RVI_EMBEDDER_WIDTH],
    rvi_judge_middle_scale[RVI_EMBEDDER_WIDTH];
extern const float rvi_judge_last_mean[RVI_EMBEDDER_WIDTH],
    rvi_judge_last_scale[RVI_EMBEDDER_WIDTH];

#endif
