#include "server/timings.h"

#include <stdio.h>
#include <string.h>

#include "base/os.h"
#include "server/reply.h"

static void put(rvi_buf *out, const char *before, const char *name, double v)
{
    rvi_buf_printf(out, "%s\"%s\":", before, name);
    rvi_json_write_number(out, v);
}

static void put_phase(rvi_buf *out, const char *name, int n, double seconds, int steps)
{
    char member[40];
    double ms = seconds * 1e3;
    rvi_buf_printf(out, ",\"%s_n\":%d", name, n);
    snprintf(member, sizeof member, "%s_ms", name);
    put(out, ",", member, ms);
    snprintf(member, sizeof member, "%s_per_token_ms", name);
    put(out, ",", member, steps ? ms / steps : 0);
    snprintf(member, sizeof member, "%s_per_second", name);
    put(out, ",", member, ms > 0 && steps ? 1e3 / ms * steps : 0);
}

/* The first token comes with the prompt. */
static void put_figures(rvi_buf *out, int cached, int n_prompt, double prompt_seconds, int n,
                        double seconds)
{
    rvi_buf_printf(out, ",\"timings\":{\"cache_n\":%d", cached);
    put_phase(out, "prompt", n_prompt, prompt_seconds, n_prompt);
    put_phase(out, "predicted", n, seconds, n > 1 ? n - 1 : 0);
    rvi_buf_putc(out, '}');
}

void rvi_timings_put(const rvi_call *k, int choice, rvi_buf *out)
{
    const rvi_choice *c = &k->choices[choice];
    const rvi_part *p = &k->parts[choice / k->wish.n];
    double now = rvi_os_seconds();
    bool begun = c->first_token > 0;
    double prompt = c->prompt_seconds > 0 ? c->prompt_seconds
                    : begun               ? c->first_token - k->since
                                          : now - k->since;
    double rest = c->n_generated ? c->seconds : begun ? now - c->first_token : 0;
    put_figures(out, p->n_reused, p->n_prompt - p->n_reused, prompt,
                c->n_generated ? c->n_generated : (int)c->n_ids, rest);
}

bool rvi_timings_wanted(const rvi_call *k)
{
    return k->s->server->llama.on &&
           rvi_json_bool(rvi_json_get(k->body, "timings_per_token"), false);
}

bool rvi_progress_wanted(const rvi_call *k)
{
    return k->s->server->llama.on && k->wish.stream &&
           rvi_json_bool(rvi_json_get(k->body, "return_progress"), false);
}

void rvi_timings_put_progress(const rvi_call *k, int part, int done, rvi_buf *out)
{
    const rvi_part *p = &k->parts[part];
    double seconds = done > p->n_reused ? rvi_os_seconds() - k->since : 0;
    rvi_buf_printf(
        out, ",\"prompt_progress\":{\"total\":%d,\"cache\":%d,\"processed\":%d,\"time_ms\":%lld}",
        p->n_prompt, p->n_reused, done, (long long)(seconds * 1e3));
    put_figures(out, p->n_reused, done - p->n_reused, seconds, 0, 0);
}

void rvi_verbose_put(const rvi_call *k, rvi_buf *out)
{
    int32_t *ids = NULL;
    size_t n = 0;
    char *text = NULL;
    rv_error err;
    bool wanted =
        k->s->server->llama.on &&
        (k->s->server->llama.verbose || rvi_json_bool(rvi_json_get(k->body, "verbose"), false));
    if (!wanted || !k->chat.len) return;
    int32_t *all = NULL;
    size_t at = k->beginning >= 0;
    rvi_buf whole = {0};
    bool ok = !rv_chat_tokenize(k->s->model, &k->talk, &ids, &n, &err) &&
              (all = rvi_alloc_array(n + 1, sizeof *all));
    if (ok && at) all[0] = k->beginning;
    if (ok && n) memcpy(all + at, ids, n * sizeof *ids);
    if (ok && !rv_detokenize(k->s->model, all, n + at, 0, &text, NULL, &err)) {
        rvi_buf_puts(&whole, text);
        rvi_buf_append(&whole, k->begun.len ? k->begun.data : "", k->begun.len);
        rvi_buf_puts(out, ",\"__verbose\":{\"prompt\":");
        rvi_put_buf(out, &whole);
        rvi_buf_putc(out, '}');
    }
    rvi_buf_deinit(&whole);
    rvi_free(all);
    rv_free(ids);
    rv_free(text);
}
