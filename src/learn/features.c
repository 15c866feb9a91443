#include "learn/features.h"

#include <string.h>

#include "base/json.h"
#include "model/trainer.h"

enum {
    MAX_ROWS = 512,
    MAX_SPANS = 64,
    MAX_WORDS = 128, /* tokens of a turn that are read */
};

struct rvi_features {
    rvi_features_source src;
    rvi_trainer *trainer;
    int layer;     /* the stream is read after it */
    rvi_ids frame; /* what stands before the user's words */
    float *x;
};

/* The ids of a conversation of one turn */
static rv_status encode_turn(const rvi_features_source *s, const char *text, rvi_ids *out,
                             rv_error *err)
{
    static const rvi_template_now now = {2000, 1, 1, 0, 0, 0};
    rvi_buf json = {0}, turn = {0};
    rvi_arena arena = {0};
    const rvi_json *conversation;
    rvi_buf_puts(&json, "{\"messages\":[{\"role\":\"user\",\"content\":");
    rvi_json_write_string(&json, text, strlen(text));
    rvi_buf_puts(&json, "}],\"add_generation_prompt\":true}");
    rv_status st = json.failed ? rvi_nomem(err, "conversation") : RV_OK;
    if (!st) st = rvi_json_parse(&conversation, json.data, json.len, &arena, "conversation", err);
    if (!st) st = rvi_chat_render(s->chat, conversation, &now, &turn, err);
    if (!st) st = rvi_tokenizer_encode(s->tokenizer, turn.data, turn.len, 0, out, err);
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&json);
    rvi_buf_deinit(&turn);
    return st;
}

/* What two turns have in common before they differ */
static rv_status find_frame(rvi_features *f, rv_error *err)
{
    rvi_ids other = {0};
    rv_status st = encode_turn(&f->src, "X", &f->frame, err);
    if (!st) st = encode_turn(&f->src, "7", &other, err);
    size_t n = 0;
    while (!st && n < f->frame.len && n < other.len && f->frame.data[n] == other.data[n]) n++;
    f->frame.len = n;
    rvi_ids_deinit(&other);
    if (!st && n > MAX_ROWS - MAX_WORDS)
        st = rvi_error(err, RV_E_MODEL, "the chat template puts %zu tokens before a turn", n);
    return st;
}

rv_status rvi_features_new(rvi_features **out, const rvi_features_source *src, rv_error *err)
{
    const rvi_model *m = src->model;
    *out = NULL;
    rvi_features *f = rvi_zalloc(sizeof *f);
    if (!f) return rvi_nomem(err, "features");
    f->src = *src;
    f->layer = (int)(0.27 * m->hp.n_layers);
    f->x = rvi_alloc_array((size_t)m->hp.n_embd, sizeof *f->x);
    rvi_trainer_options o = {
        .max_rows = MAX_ROWS, .max_spans = MAX_SPANS, .max_losses = 1, .lowest = m->hp.n_layers};
    rv_status st = f->x ? RV_OK : rvi_nomem(err, "features");
    if (!st) st = find_frame(f, err);
    if (!st) st = rvi_trainer_new(&f->trainer, m, src->be, NULL, NULL, &o, err);
    if (st)
        rvi_features_free(f);
    else
        *out = f;
    return st;
}

void rvi_features_free(rvi_features *f)
{
    if (!f) return;
    rvi_trainer_free(f->trainer);
    rvi_ids_deinit(&f->frame);
    rvi_free(f->x);
    rvi_free(f);
}

int rvi_features_dim(const rvi_features *f)
{
    return f->src.model->hp.n_embd;
}

/* Marks the tokens of every occurrence of the words from..to of the text, alone or behind a
 * space. */
static rv_status leave_out(const rvi_features *f, const char *word, size_t len, const rvi_ids *ids,
                           bool *left_out, rv_error *err)
{
    rv_status st = RV_OK;
    for (int spaced = 0; spaced < 2 && !st; spaced++) {
        rvi_buf text = {0};
        rvi_ids part = {0};
        if (spaced) rvi_buf_putc(&text, ' ');
        rvi_buf_append(&text, word, len);
        st = text.failed ? rvi_nomem(err, "word")
                         : rvi_tokenizer_encode(f->src.tokenizer, text.data, text.len,
                                                RVI_TOK_PLAIN, &part, err);
        for (size_t i = 0; !st && part.len && i + part.len <= ids->len; i++)
            if (!memcmp(ids->data + i, part.data, part.len * sizeof *part.data))
                for (size_t k = 0; k < part.len; k++) left_out[i + k] = true;
        rvi_ids_deinit(&part);
        rvi_buf_deinit(&text);
    }
    return st;
}

typedef struct batch {
    int32_t tokens[MAX_ROWS];
    bool left_out[MAX_ROWS];
    rvi_span spans[MAX_SPANS];
    int n_rows, n_spans;
} batch;

/* Puts the last words of a text into the batch. *full: there was no room. */
static rv_status add_text(const rvi_features *f, batch *b, const rvi_gate_text *text, bool *full,
                          rv_error *err)
{
    rvi_ids ids = {0};
    rv_status st = text->len ? rvi_tokenizer_encode(f->src.tokenizer, text->text, text->len,
                                                    RVI_TOK_PLAIN, &ids, err)
                             : RV_OK;
    size_t n = RVI_MIN(ids.len, (size_t)MAX_WORDS), from = ids.len - n;
    *full = b->n_spans == MAX_SPANS || (size_t)b->n_rows + n > MAX_ROWS;
    bool *left_out = !st && !*full ? rvi_zalloc_array(ids.len + 1, sizeof *left_out) : NULL;
    if (!st && !*full && !left_out) st = rvi_nomem(err, "tokens");
    for (size_t i = 0; !st && !*full && i < text->n_masks; i++)
        st = leave_out(f, text->text + text->masks[i].at, text->masks[i].len, &ids, left_out, err);
    if (!st && !*full) {
        b->spans[b->n_spans++] =
            (rvi_span){b->n_rows, (int)n, (int)f->frame.len, f->frame.len ? 0 : -1};
        for (size_t i = 0; i < n; i++, b->n_rows++) {
            b->tokens[b->n_rows] = ids.data[from + i];
            b->left_out[b->n_rows] = left_out[from + i];
        }
    }
    rvi_free(left_out);
    rvi_ids_deinit(&ids);
    return st;
}

static void pool(rvi_features *f, const batch *b, const rvi_span *span, float *out)
{
    int dim = rvi_features_dim(f), n = 0;
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int r = span->first; r < span->first + span->n; r++) {
        if (b->left_out[r]) continue;
        rvi_trainer_get_x(f->trainer, r, f->x);
        for (int i = 0; i < dim; i++) out[i] += f->x[i];
        n++;
    }
    for (int i = 0; i < dim && n; i++) out[i] /= (float)n;
}

rv_status rvi_features_read(void *ctx, const rvi_gate_text *texts, size_t n, float *out,
                            rv_error *err)
{
    rvi_features *f = ctx;
    size_t dim = (size_t)rvi_features_dim(f);
    batch *b = rvi_zalloc(sizeof *b);
    rv_status st = b ? RV_OK : rvi_nomem(err, "features");
    for (size_t done = 0; done < n && !st;) {
        bool full = false;
        size_t first = done, own = f->frame.len > 0; /* the frame's span comes first */
        b->n_rows = (int)f->frame.len;
        b->n_spans = (int)own;
        b->spans[0] = (rvi_span){0, b->n_rows, 0, -1};
        if (own) memcpy(b->tokens, f->frame.data, f->frame.len * sizeof *b->tokens);
        while (done < n && !full && !st) {
            st = add_text(f, b, &texts[done], &full, err);
            if (!full && !st) done++;
        }
        if (st) break;
        rvi_trainer_begin(f->trainer, b->tokens, b->spans, b->n_spans);
        if (b->n_rows) rvi_trainer_forward(f->trainer, 0, f->layer + 1);
        for (size_t i = first; i < done; i++) pool(f, b, &b->spans[own + i - first], out + i * dim);
    }
    rvi_free(b);
    return st;
}
