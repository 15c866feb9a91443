#include "learn/recognise/judge.h"

#include <math.h>
#include <string.h>

#include "learn/recognise/judge_weights.h"

enum {
    WORDS = RVI_READING_WORDS,
    SEEN = RVI_JUDGE_SEEN,
    HIDDEN = RVI_JUDGE_HIDDEN,
    WHOLE = RVI_JUDGE_WHOLE,
    POOLED = 3 * SEEN,
};

#define SPELLED_ALIKE 0.5f /* from here on spelling counts as a match */
#define SAME_WORD     0.99f
#define RARE          0.4f

/* How alike the words of two texts are: x's in rows, y's in columns. */
typedef struct alignment {
    int n, m;
    float middle[WORDS][WORDS], last[WORDS][WORDS], spelling[WORDS][WORDS], match[WORDS][WORDS];
} alignment;

static void widen(int16_t *to, const int8_t *from, int n)
{
    for (int i = 0; i < n; i++) to[i] = from[i];
}

/* Unlike fmaxf, which must ask for NaN, this is one instruction, also of vectors. */
static float larger(float a, float b)
{
    return a > b ? a : b;
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void align_spelling(alignment *a, const rvi_reading *x, const rvi_reading *y)
{
    int16_t u[RVI_SPELLING], v[WORDS][RVI_SPELLING];
    for (int j = 0; j < y->n; j++) widen(v[j], y->spelling[j], RVI_SPELLING);
    for (int i = 0; i < x->n; i++) {
        widen(u, x->spelling[i], RVI_SPELLING);
        for (int j = 0; j < y->n; j++)
            a->spelling[i][j] = rvi_dot_16(u, v[j], RVI_SPELLING) * x->words[i].spelling_scale *
                                y->words[j].spelling_scale;
    }
}

static void align_states(float to[WORDS][WORDS], int8_t (*const x)[RVI_EMBEDDER_WIDTH], int n,
                         int8_t (*const y)[RVI_EMBEDDER_WIDTH], int m)
{
    int16_t u[RVI_EMBEDDER_WIDTH], v[WORDS][RVI_EMBEDDER_WIDTH];
    for (int j = 0; j < m; j++) widen(v[j], y[j], RVI_EMBEDDER_WIDTH);
    for (int i = 0; i < n; i++) {
        widen(u, x[i], RVI_EMBEDDER_WIDTH);
        for (int j = 0; j < m; j++) to[i][j] = rvi_dot_16(u, v[j], RVI_EMBEDDER_WIDTH);
    }
}

static void align(alignment *a, const rvi_reading *x, const rvi_reading *y)
{
    a->n = x->n;
    a->m = y->n;
    align_spelling(a, x, y);
    if (x->embedded) {
        align_states(a->middle, x->middle, x->n, y->middle, y->n);
        align_states(a->last, x->last, x->n, y->last, y->n);
    }
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < y->n; j++) {
            const rvi_read_word *u = &x->words[i], *v = &y->words[j];
            float spelling = a->spelling[i][j];
            float middle = x->embedded ? a->middle[i][j] * u->middle_scale * v->middle_scale : 0;
            float last = x->embedded ? a->last[i][j] * u->last_scale * v->last_scale : 0;
            a->middle[i][j] = middle;
            a->last[i][j] = last;
            a->match[i][j] =
                larger(0.5f * middle + 0.5f * last, spelling > SPELLED_ALIKE ? spelling : 0);
        }
}

static void turn(alignment *to, const alignment *from)
{
    to->n = from->m;
    to->m = from->n;
    for (int i = 0; i < to->n; i++)
        for (int j = 0; j < to->m; j++) {
            to->middle[i][j] = from->middle[j][i];
            to->last[i][j] = from->last[j][i];
            to->spelling[i][j] = from->spelling[j][i];
            to->match[i][j] = from->match[j][i];
        }
}

static float most(const float *v, int n)
{
    float best = v[0];
    for (int i = 1; i < n; i++) best = larger(best, v[i]);
    return best;
}

static int best_row(const alignment *a, int j)
{
    int best = 0;
    for (int i = 1; i < a->n; i++)
        if (a->match[i][j] > a->match[best][j]) best = i;
    return best;
}

static float place(int i, int n)
{
    return (float)i / (float)(n > 1 ? n - 1 : 1);
}

/* The features of word i of x, whose words are the rows of a. */
static void look_at_word(float f[RVI_JUDGE_WORD], const alignment *a, int i, const rvi_reading *x,
                         const rvi_reading *y, const rvi_reading *answer, float rarest)
{
    const rvi_read_word *w = &x->words[i];
    int j = 0;
    float second = a->m > 1 ? -1 : 0, spelling = most(a->spelling[i], a->m);
    for (int k = 1; k < a->m; k++)
        if (a->match[i][k] > a->match[i][j]) j = k;
    for (int k = 0; k < a->m; k++)
        if (k != j) second = larger(second, a->match[i][k]);
    const float values[RVI_JUDGE_WORD] = {most(a->middle[i], a->m),
                                          most(a->last[i], a->m),
                                          spelling,
                                          a->last[i][j],
                                          a->match[i][j],
                                          second,
                                          best_row(a, j) == i,
                                          w->rarity,
                                          w->digits,
                                          w->east_asian,
                                          w->length,
                                          y->words[j].rarity,
                                          w->digits && spelling < SAME_WORD,
                                          fabsf(place(i, a->n) - place(j, a->m)),
                                          rvi_reading_has(answer, w->key) &&
                                              !rvi_reading_has(y, w->key),
                                          w->rarity / larger(rarest, 1e-3f),
                                          w->pieces};
    memcpy(f, values, sizeof values);
}

typedef struct match {
    float covered; /* of the words of a text, the rare ones counting most */
    float missing; /* the rarest that has no match */
    float digits;  /* words with digits that the other text does not have */
} match;

/* What is seen in the words of x: its mean, its largest, and its mean by rarity. */
static void look(float pooled[POOLED], match *m, const rvi_judge_weights *w, const alignment *a,
                 const rvi_reading *x, const rvi_reading *y, const rvi_reading *answer,
                 bool is_request)
{
    float *mean = pooled, *largest = pooled + SEEN, *weighted = pooled + 2 * SEEN, rarest = 0;
    double weights = 0, covered = 0;
    memset(pooled, 0, POOLED * sizeof *pooled);
    *m = (match){0};
    for (int i = 0; i < x->n; i++) rarest = larger(rarest, x->words[i].rarity);
    for (int i = 0; i < x->n; i++) {
        float f[RVI_JUDGE_WORD], seen[SEEN];
        look_at_word(f, a, i, x, y, answer, rarest);
        for (int k = 0; k < SEEN; k++)
            seen[k] = w->word_bias[k] + (is_request ? w->word[RVI_JUDGE_WORD][k] : 0);
        for (int c = 0; c < RVI_JUDGE_WORD; c++)
            for (int k = 0; k < SEEN; k++) seen[k] += f[c] * w->word[c][k];
        float weight = x->words[i].rarity * x->words[i].rarity;
        for (int k = 0; k < SEEN; k++) {
            float v = larger(seen[k], 0);
            mean[k] += v;
            largest[k] = larger(largest[k], v);
            weighted[k] += v * weight;
        }
        weights += (double)weight;
        covered += (double)(weight * f[4]);
        m->missing = larger(m->missing, weight * (1 - f[4]));
        if (x->words[i].digits && !rvi_reading_has(y, x->words[i].key)) m->digits = 1;
    }
    for (int k = 0; k < SEEN; k++) {
        mean[k] /= (float)x->n;
        weighted[k] /= (float)(weights + 1e-6);
    }
    m->covered = (float)(covered / (weights + 1e-6));
}

static int distinct(const rvi_reading *r)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        bool new = true;
        for (int k = 0; k < i; k++) new &= r->words[k].key != r->words[i].key;
        n += new;
    }
    return n;
}

static float pieces(const rvi_reading *r)
{
    float sum = 0;
    for (int i = 0; i < r->n; i++) sum += r->words[i].pieces;
    return sum / (float)r->n;
}

static void look_at_whole(float f[WHOLE], const rvi_reading *q, const rvi_reading *answer,
                          const rvi_reading *r, const match *in_q, const match *in_r)
{
    float told = 0, east_asian = 0;
    for (int i = 0; i < answer->n; i++) {
        const rvi_read_word *w = &answer->words[i];
        if (w->rarity > RARE && rvi_reading_has(r, w->key) && !rvi_reading_has(q, w->key))
            told += w->rarity;
    }
    for (int i = 0; i < q->n; i++) east_asian += q->words[i].east_asian;
    const float values[WHOLE] = {dot(q->gist.meaning, r->gist.meaning, RVI_EMBEDDER_WIDTH),
                                 dot(q->gist.spelled, r->gist.spelled, RVI_SPELLING),
                                 told / larger(1, sqrtf((float)answer->n)),
                                 logf((float)distinct(r) / (float)distinct(q)),
                                 in_q->covered,
                                 in_r->covered,
                                 in_q->missing,
                                 in_r->missing,
                                 dot(answer->gist.meaning, r->gist.meaning, RVI_EMBEDDER_WIDTH),
                                 dot(answer->gist.meaning, q->gist.meaning, RVI_EMBEDDER_WIDTH),
                                 in_q->digits > 0 || in_r->digits > 0,
                                 east_asian / (float)q->n,
                                 pieces(q),
                                 pieces(r)};
    memcpy(f, values, sizeof values);
}

float rvi_judge(const rvi_reading *q, const rvi_reading *answer, const rvi_reading *r)
{
    const rvi_judge_weights *w = q->embedded ? &rvi_judge_embedded : &rvi_judge_spelled;
    float in[2 * POOLED + WHOLE], hidden[HIDDEN], *whole = in + 2 * POOLED;
    alignment a, turned;
    match in_q, in_r;
    if (!q->n || !r->n) return 0;
    align(&a, q, r);
    turn(&turned, &a);
    look(in, &in_q, w, &a, q, r, answer, false);
    look(in + POOLED, &in_r, w, &turned, r, q, answer, true);
    look_at_whole(whole, q, answer, r, &in_q, &in_r);
    memcpy(hidden, w->hidden_bias, sizeof hidden);
    for (int c = 0; c < 2 * POOLED + WHOLE; c++)
        for (int k = 0; k < HIDDEN; k++) hidden[k] += in[c] * w->hidden[c][k];
    float out = w->out_bias;
    for (int k = 0; k < HIDDEN; k++) out += larger(hidden[k], 0) * w->out[k];
    for (int c = 0; c < WHOLE; c++) out += whole[c] * w->out_whole[c];
    return 1 / (1 + expf(-out));
}

float rvi_judge_compared(float aligned, float odds)
{
    float p = fminf(larger(aligned, 1e-6f), 1 - 1e-6f);
    return 1 / (1 + expf(-0.5f * (logf(p / (1 - p)) + odds)));
}

float rvi_judge_sure(bool embedded)
{
    return embedded ? rvi_judge_embedded.sure : rvi_judge_spelled.sure;
}
