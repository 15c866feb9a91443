/* bert_sets.h - the characters that BERT's tokenizer treats by themselves. The data are generated
 * (bert_sets.c): its sets are those of Unicode 8, not those of unicode_tables.c. */
#ifndef RVI_TOKENIZER_BERT_SETS_H
#define RVI_TOKENIZER_BERT_SETS_H

#include "text/unicode.h"

extern const rvi_unicode_range rvi_bert_removed[]; /* controls, U+FFFD and the like: taken out */
extern const size_t rvi_bert_n_removed;
extern const rvi_unicode_range rvi_bert_marks[]; /* stripped after decomposition */
extern const size_t rvi_bert_n_marks;
extern const rvi_unicode_range rvi_bert_punctuation[]; /* words of their own */
extern const size_t rvi_bert_n_punctuation;

/* Adds a table and closes the set; false: out of memory. */
static inline bool rvi_bert_set(rvi_cpset *s, const rvi_unicode_range *ranges, size_t n)
{
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = rvi_cpset_add(s, ranges[i].first, ranges[i].last);
    rvi_cpset_close(s);
    return ok;
}

#endif
