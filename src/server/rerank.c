/* /rerank: texts in the order of their nearness to a question, by the cosine of their vectors. Two
 * shapes: with "documents", and with "texts" as text-embeddings-inference has it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/llama_paths.h"
#include "server/openai.h"
#include "server/prompts.h"

typedef struct ranking {
    const rvi_json *texts;
    bool tei;
} ranking;

typedef struct place {
    int index;
    double score;
} place;

static double cosine(const rvi_part *a, const rvi_part *b)
{
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < RVI_MIN(a->n_values, b->n_values); i++) {
        dot += (double)a->values[i] * (double)b->values[i];
        aa += (double)a->values[i] * (double)a->values[i];
        bb += (double)b->values[i] * (double)b->values[i];
    }
    return aa > 0 && bb > 0 ? dot / sqrt(aa * bb) : 0;
}

/* The better first; of equal ones the earlier. */
static int by_score(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->score < y->score) return 1;
    return x->score > y->score ? -1 : (x->index > y->index) - (x->index < y->index);
}

static void put_place(const rvi_call *k, const place *p, rvi_buf *out)
{
    const ranking *r = k->own;
    const rvi_json *text = rvi_json_at(r->texts, (size_t)p->index);
    rvi_buf_printf(out, "{\"index\":%d,\"%s\":", p->index, r->tei ? "score" : "relevance_score");
    rvi_json_write_number(out, p->score);
    if (k->wish.with_texts) {
        rvi_buf_puts(out, r->tei ? ",\"text\":" : ",\"document\":{\"text\":");
        rvi_json_write(out, text);
        if (!r->tei) rvi_buf_putc(out, '}');
    }
    rvi_buf_putc(out, '}');
}

static void end(rvi_call *k)
{
    const ranking *r = k->own;
    int n = k->n_parts - 1, most = k->wish.top_n ? RVI_MIN(k->wish.top_n, n) : n;
    rvi_buf out = {0};
    rvi_usage u = rvi_call_usage(k);
    place *places = rvi_arena_alloc(&k->arena, (size_t)n, sizeof *places);
    for (int i = 0; places && i < n; i++)
        places[i] = (place){i, cosine(&k->parts[0], &k->parts[i + 1])};
    if (places) qsort(places, (size_t)n, sizeof *places, by_score);
    if (!r->tei) {
        rvi_buf_puts(&out, "{\"object\":\"list\",\"model\":");
        rvi_put_text(&out, k->model);
        rvi_buf_printf(&out, ",\"usage\":{\"prompt_tokens\":%ld,\"total_tokens\":%ld},\"results\":",
                       u.prompt, u.prompt);
    }
    rvi_buf_putc(&out, '[');
    for (int i = 0; places && i < most; i++) {
        if (i) rvi_buf_putc(&out, ',');
        put_place(k, &places[i], &out);
    }
    rvi_buf_puts(&out, r->tei ? "]" : "]}");
    if (!places) out.failed = true;
    rvi_reply_json(&rvi_openai, k->conn, &out);
}

static const rvi_writer writer = {.dialect = &rvi_openai, .end = end};

/* A list of texts, none of them empty. */
static bool check_texts(rvi_call *k, const char *field, const rvi_json *list)
{
    bool good = rvi_json_is(list, RVI_JSON_ARRAY) && rvi_json_count(list);
    for (size_t i = 0; good && i < rvi_json_count(list); i++)
        good = rvi_json_is(rvi_json_at(list, i), RVI_JSON_STRING);
    return good || rvi_problem_set(&k->problem, 400, list ? "invalid_type" : "missing_field", field,
                                   "%s must be a list of one or more strings", field);
}

static bool submit_text(rvi_call *k, int part, const rvi_prompt *text)
{
    rv_embed_options o = {.size = sizeof o, .refuse_long = true};
    rv_request r = {.kind = RV_REQUEST_EMBED, .ids = text->ids, .n_ids = text->n, .embed = &o};
    return rvi_call_submit(k, part, &r);
}

static bool submit(rvi_call *k, ranking *r)
{
    const rvi_json *query = rvi_json_get(k->body, "query");
    const char *field = r->tei ? "texts" : "documents";
    rvi_prompt *one, *all;
    int n_one, n;
    if (!k->s->info.is_encoder)
        return rvi_problem_set(&k->problem, 400, "unsupported_model", NULL,
                               "only a model that makes vectors of texts can rank them; this one "
                               "generates text");
    if (!rvi_json_is(query, RVI_JSON_STRING))
        return rvi_problem_set(&k->problem, 400, query ? "invalid_type" : "missing_field", "query",
                               "query must be a string");
    if (!check_texts(k, field, r->texts) ||
        !rvi_prompts_read(k->s->model, query, "query", RV_TOKENIZE_WRAP, &k->arena, &one, &n_one,
                          &k->problem) ||
        !rvi_prompts_read(k->s->model, r->texts, field, RV_TOKENIZE_WRAP, &k->arena, &all, &n,
                          &k->problem) ||
        !rvi_call_parts(k, n + 1, 0) || !submit_text(k, 0, one))
        return false;
    for (int i = 0; i < n; i++)
        if (!submit_text(k, i + 1, &all[i])) return false;
    return true;
}

void rvi_llama_rerank(rvi_serving *s, rvi_conn *c)
{
    rvi_call *k = rvi_call_new(s, c, &writer, RVI_FOR_RANKING, "rank-");
    if (!k) return;
    ranking *r = k->own = rvi_arena_alloc(&k->arena, 1, sizeof *r);
    if (!r) {
        (void)rvi_problem_set(&k->problem, 503, NULL, NULL, "out of memory");
    } else {
        const rvi_json *documents = rvi_json_get(k->body, "documents");
        const rvi_json *texts = rvi_json_get(k->body, "texts");
        *r = (ranking){documents ? documents : texts, texts && !documents};
        (void)submit(k, r);
    }
    rvi_call_start(k);
}
