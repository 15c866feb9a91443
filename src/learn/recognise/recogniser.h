/* recogniser.h - which of the lessons does a request ask for?
 *
 * Holds how the lessons read (reading.h). A request is read without a greeting or thanks around it,
 * which hide what it asks for; where that opens nothing, the sentence that asks is read once more
 * alone, since what stands beside a question is often no part of it. The lessons nearest to either
 * on the whole are looked at by the judge (judge.h), and the likeliest of them compared with it by
 * the embedder. One thread at a time. */
#ifndef RVI_LEARN_RECOGNISE_RECOGNISER_H
#define RVI_LEARN_RECOGNISE_RECOGNISER_H

#include "learn/recognise/embedder.h"

typedef struct rvi_recogniser rvi_recogniser;

/* Where it is kept how lessons read, so that they need not be read again by every process: on the
 * whole, which is looked at of every lesson, and in full, of the few that may be asked for. Nothing
 * is lost where that fails. */
typedef enum rvi_kept { RVI_KEPT_GIST, RVI_KEPT_READING } rvi_kept;
typedef struct rvi_recogniser_memory {
    void *ctx;
    bool (*recall)(void *ctx, rvi_kept what, uint64_t lesson, rvi_buf *out); /* false: not there */
    void (*keep)(void *ctx, rvi_kept what, uint64_t lesson, const void *data, size_t len);
} rvi_recogniser_memory;

/* embedder: borrowed; NULL: lessons are recognised by spelling alone. memory may be NULL. */
rv_status rvi_recogniser_new(rvi_recogniser **out, rvi_embedder *embedder,
                             const rvi_recogniser_memory *memory, rv_error *err) RVI_MUST_CHECK;
void rvi_recogniser_free(rvi_recogniser *r); /* accepts NULL */

/* Texts are copied. One that is there already stays. */
rv_status rvi_recogniser_add(rvi_recogniser *r, uint64_t lesson, const char *question,
                             const char *answer, rv_error *err) RVI_MUST_CHECK;
/* Reads it now, if it is there and was not read yet; otherwise that is done when somebody asks. */
rv_status rvi_recogniser_read(rvi_recogniser *r, uint64_t lesson, rv_error *err) RVI_MUST_CHECK;
void rvi_recogniser_remove(rvi_recogniser *r, uint64_t lesson); /* if it is there */
void rvi_recogniser_clear(rvi_recogniser *r);

typedef struct rvi_recognised {
    uint64_t lesson;   /* 0: none */
    float probability; /* that it is what the request asks for */
    bool sure;         /* likely enough for its answer to be spoken, */
    bool likely;       /* and for a model that can read to be shown it */
    bool listed;       /* both are known to ask who one is, which the judge did not see */
    /* words of the request, by their place: that its question has, and that it has not but others
     * that are spelled nearly alike */
    uint32_t has, resembles;
} rvi_recognised;

/* The likeliest first; of lessons that are nearly as likely as each other the one that has a name
 * of the request where the other has one like it, or else the newest (the one with the highest
 * number). Returns at most max of them; *n 0: there are no lessons. */
rv_status rvi_recogniser_ask(rvi_recogniser *r, const char *request, rvi_recognised *out,
                             size_t max, size_t *n, rv_error *err) RVI_MUST_CHECK;

/* The same of a request that asks for nothing by itself, since an earlier text of its asker names
 * what it is about ("What is the capital of France?" "And its population?"). *last: texts before
 * the earlier one say nothing about the request. */
rv_status rvi_recogniser_follow(rvi_recogniser *r, const char *earlier, const char *request,
                                rvi_recognised *out, size_t max, size_t *n, bool *last,
                                rv_error *err) RVI_MUST_CHECK;

#endif
