/* What the library chose (rv_model_explain), and what this program chose around it. */
#include "cli/explain.h"

#include <string.h>

#include "base/error.h"
#include "base/json.h"

static void put_choice(rvi_buf *out, bool json, const char *name, const char *is, const char *why)
{
    if (!json) {
        rvi_buf_printf(out, "%-13s %s: %s\n", name, is, why);
        return;
    }
    rvi_buf_printf(out, "%s\"%s\":{\"is\":", out->len ? "," : "{", name);
    rvi_json_write_string(out, is, strlen(is));
    rvi_buf_puts(out, ",\"why\":");
    rvi_json_write_string(out, why, strlen(why));
    rvi_buf_puts(out, "}");
}

static void put_learning(rvi_buf *out, bool json, const cli_learning *l)
{
    char why[160];
    snprintf(why, sizeof why, "what was taught as '%s' takes part where it is asked for",
             l->name ? l->name : "default");
    put_choice(out, json, "learning", l->l ? "on" : "off", l->l ? why : l->none);
}

rv_status cli_explain(const cli_explained *e, bool json, rvi_buf *out, rv_error *err)
{
    rvi_arena arena = {0};
    const rvi_json *choices = NULL;
    char *text = NULL;
    rv_status st = rv_model_explain(e->m, e->s, &e->g->options, &text, err);
    if (!st) st = rvi_json_parse(&choices, text, strlen(text), &arena, "explanation", err);
    for (size_t i = 0; !st && i < rvi_json_count(choices); i++) {
        const rvi_json *c = rvi_json_at(choices, i);
        const char *why = rvi_json_string(rvi_json_get(c, "why"), "");
        if (!strcmp(c->key, "context") && e->g->shortened[0]) why = e->g->shortened;
        put_choice(out, json, c->key, rvi_json_string(rvi_json_get(c, "is"), ""), why);
    }
    if (!st && e->learning) put_learning(out, json, e->learning);
    if (!st && json) rvi_buf_puts(out, "}");
    if (!st && out->failed) st = rvi_nomem(err, "explanation");
    if (!st && !json) cli_hush(out->data, out->len); /* the file names the architecture */
    rv_free(text);
    rvi_arena_deinit(&arena);
    return st;
}

int cli_explain_only(cli *c, const char *name, cli_generation *g, const char *alone, bool json)
{
    rv_error err = {0};
    cli_model model = {0};
    cli_learning learning = {0};
    rv_session *s = NULL;
    rvi_buf choices = {0}, out = {0};
    int code = cli_generation_resolve(c, g, false);
    if (code) return code;
    rv_status st = cli_open(c, name, false, &model, &err);
    bool encoder = !st && rv_model_get_info(model.m)->is_encoder;
    if (!st && !encoder) st = cli_learning_use(&learning, c, &model, g->learned, alone, &err);
    if (!st && !encoder) st = cli_generation_session(c, g, &model, &s, &err);
    const cli_explained e = {model.m, s, g, encoder ? NULL : &learning};
    if (!st) st = cli_explain(&e, json, &choices, &err);
    if (!st) {
        rvi_buf_puts(&out, json ? "{\"backend\":" : "");
        rvi_buf_append(&out, choices.data, choices.len);
        rvi_buf_puts(&out, json ? "}\n" : "");
        code = cli_print(&out);
    }
    rvi_buf_deinit(&choices);
    rv_session_free(&s);
    cli_generation_close(g);
    cli_learning_close(&learning);
    cli_close(&model);
    return st ? cli_fail(&err) : code;
}
