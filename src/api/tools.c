/* Tools and thinking: a grammar for the answer, and what its text says. JSON that was held to
 * nothing, mended and checked. */
#include "ruvllm_tools.h"

#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "calls/validate.h"
#include "grammar/lark.h"
#include "text/repair.h"

enum { MAX_BLANKS = 24 /* in a row, in JSON: enough to indent */ };

/* ---- making ---- */

/* Whether the template leaves the beginning of an answer inside the thoughts. */
static rv_status find_opened(rv_tools *t, rv_error *err)
{
    char chat[160];
    rvi_arena arena = {0};
    const rvi_json *json;
    rvi_buf text = {0};
    rv_error ignored;
    static const rvi_template_now some_day = {.year = 2024, .month = 1, .day = 1};
    snprintf(chat, sizeof chat,
             "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"add_generation_prompt\":true,"
             "\"enable_thinking\":%s}",
             t->off ? "false" : "true");
    rv_status st = rvi_json_parse(&json, chat, strlen(chat), &arena, "probe", err);
    if (!st) {
        st = rvi_chat_render(t->m->chat, json, &some_day, &text, &ignored);
        if (st && st != RV_E_NOMEM) st = RV_OK; /* a template that wants more than that */
        if (st && err) *err = ignored;
    }
    size_t n = text.len, open = strlen(t->thinking->open);
    while (n && strchr(" \n\t\r", text.data[n - 1])) n--;
    t->opened = n >= open && !memcmp(text.data + n - open, t->thinking->open, open);
    rvi_buf_deinit(&text);
    rvi_arena_deinit(&arena);
    return st;
}

static rvi_form_kind form_of(const rv_tools_options *o)
{
    static const rvi_form_kind kinds[] = {
        [RV_GRAMMAR_SCHEMA] = RVI_FORM_SCHEMA,   [RV_GRAMMAR_JSON] = RVI_FORM_JSON,
        [RV_GRAMMAR_REGEX] = RVI_FORM_REGEX,     [RV_GRAMMAR_GBNF] = RVI_FORM_GBNF,
        [RV_GRAMMAR_CHOICES] = RVI_FORM_CHOICES, [RV_GRAMMAR_LARK] = RVI_FORM_GBNF};
    return o->form_text ? kinds[o->form] : RVI_FORM_TEXT;
}

/* The text of the form, kept with the tools; Lark becomes GBNF. */
static rv_status keep_form(rv_tools *t, const rv_tools_options *o, rv_error *err)
{
    t->form = form_of(o);
    if (!o->form_text) return RV_OK;
    if (o->form == RV_GRAMMAR_LARK)
        return rvi_lark_to_gbnf(&t->form_text, o->form_text, o->form_len, err);
    rvi_buf_append(&t->form_text, o->form_text, o->form_len);
    return rvi_buf_puts(&t->form_text, "") ? RV_OK : rvi_nomem(err, "form");
}

static rv_status compile(rv_tools *t, const rvi_notation *n, rv_error *err)
{
    rvi_buf text = {0};
    rv_status st = rvi_notation_write(&text, n, err);
    if (!st) {
        rvi_api_language l = {
            .kind = RV_GRAMMAR_GBNF, .text = text.data, .len = text.len, .marked = true};
        l.how = (rvi_grammar_options){.max_blanks = MAX_BLANKS, .canonical = true};
        st = rvi_api_new_grammar(&t->g, t->m, &l, err);
    }
    rvi_buf_deinit(&text);
    return st;
}

/* Whose parameters were the reason, if a tool's alone are refused too. */
static void blame(rv_tools *t, rv_error *err)
{
    for (size_t i = 0; t->tools && i < t->tools->n && err; i++) {
        const rvi_tool *tool = &t->tools->items[i];
        rv_error own = {0};
        rvi_api_language l = {.kind = RV_GRAMMAR_SCHEMA, .text = tool->schema};
        l.len = strlen(tool->schema);
        rv_status st = rvi_api_new_grammar(&t->g, t->m, &l, &own);
        if (st == RV_OK) {
            rvi_api_release_grammar(t->g);
            t->g = NULL;
        } else if (st != RV_E_NOMEM) {
            (void)!rvi_error(err, st, "tools[%zu].function.parameters (%s): %s", i, tool->name,
                             own.text);
            return;
        }
    }
}

static rv_status read_options(rv_tools_options *o, const rv_tools_options *given, rv_error *err)
{
    rv_status st = rvi_api_read_struct(o, sizeof *o, given, "rv_tools_options", err);
    if (!st && o->think < RV_THINK_OFF)
        st = rvi_error(err, RV_E_INVALID, "think must be at least -1 (got %d)", o->think);
    if (!st && o->form_text && (unsigned)o->form > RV_GRAMMAR_LARK)
        st = rvi_error(err, RV_E_INVALID, "%d is no kind of grammar", (int)o->form);
    return st;
}

/* How the model writes calls and thoughts. */
static rv_status find_ways(rv_tools *t, const rv_tools_options *o, rv_error *err)
{
    const char *source = t->m->template_text;
    size_t len = t->m->template_len;
    t->off = o->think == RV_THINK_OFF;
    t->family = rvi_family_find(source, len);
    if (!t->family) t->family = rvi_family_plain();
    t->thinking = rvi_thinking_find(source, len);
    if (o->think > 0 && !t->thinking)
        return rvi_error(err, RV_E_UNSUPPORTED,
                         "think: the model's chat template knows no thinking");
    return t->thinking ? find_opened(t, err) : RV_OK;
}

/* Unheld answers have a grammar of any text: their thoughts may be limited, and marks of calls are
 * text. */
static rv_status make_grammar(rv_tools *t, const rv_tools_options *o, rv_error *err)
{
    rvi_notation n = {
        .family = t->family, .thinking = t->thinking, .opened = t->opened, .no_thoughts = t->off};
    if (!o->unheld) {
        n.tools = t->tools;
        n.choice = t->choice;
        n.one_call = t->one_call;
        n.form = t->form;
        n.form_text = t->form_text.data;
        n.form_len = t->form_text.len;
    }
    rv_status st = compile(t, &n, err);
    if (st && st != RV_E_NOMEM) blame(t, err);
    if (!st && o->think > 0) {
        t->g->thinking = t->thinking;
        t->g->think = o->think;
    }
    return st;
}

static rv_status begin(rv_tools *t, const rv_tools_options *o, rv_error *err)
{
    rv_status st = o->tools ? rvi_tools_new(&t->tools, o->tools, strlen(o->tools), err) : RV_OK;
    if (!st) st = rvi_choice_read(&t->choice, t->tools, o->choice, err);
    if (!st) st = keep_form(t, o, err);
    if (st) return st;
    t->seed = o->seed;
    t->one_call = o->one_call != 0;
    st = find_ways(t, o, err);
    if (!st) st = make_grammar(t, o, err);
    if (t->choice.kind == RVI_CHOICE_NONE || !t->tools || !t->tools->n) t->family = NULL;
    if (!st && o->unheld) {
        rvi_check check = rvi_api_tools_check(t);
        st = rvi_check_ready(&check, err);
    }
    return st;
}

rv_status rv_tools_new(rv_tools **out, const rv_model *m, const rv_tools_options *given,
                       rv_error *err)
{
    if (!out) return rvi_error(err, RV_E_INVALID, "rv_tools_new: NULL argument");
    *out = NULL;
    rv_tools_options o;
    rv_status st = rvi_api_need_tokenizer(m, err);
    if (!st) st = read_options(&o, given, err);
    if (st) return st;
    const rv_allocator *heap = rvi_api_use_heap(m->rt);
    rv_tools *t = rvi_zalloc(sizeof *t);
    if (!t) st = rvi_nomem(err, "tools");
    if (!st) {
        t->m = rvi_api_retain_model(m);
        st = begin(t, &o, err);
    }
    if (st)
        rv_tools_free(&t);
    else
        *out = t;
    rvi_api_leave_heap(heap);
    return st;
}

void rv_tools_free(rv_tools **handle)
{
    if (!handle || !*handle) return;
    rv_tools *t = *handle;
    rv_model *m = t->m;
    *handle = NULL;
    rvi_api_release_grammar(t->g);
    rvi_tools_free(t->tools);
    rvi_buf_deinit(&t->form_text);
    rvi_free(t);
    rvi_api_release_model(m);
}

rv_grammar *rv_tools_grammar(rv_tools *t)
{
    return t ? t->g : NULL;
}

const char *rv_tools_variables(const rv_tools *t)
{
    if (!t || !t->thinking) return NULL;
    return t->off ? "{\"enable_thinking\":false}" : "{\"enable_thinking\":true}";
}

const char *rv_tools_family(const rv_tools *t)
{
    return t && t->family ? t->family->name : "";
}

/* ---- reading ---- */

struct rv_tools_reader {
    rv_tools *t;
    rvi_reader *r;
    int (*said)(void *ctx, const rv_said *said);
    void *ctx;
};

static bool pass_on(void *ctx, const rvi_reader_event *said)
{
    rv_tools_reader *r = ctx;
    rv_said out = {.kind = (rv_said_kind)said->kind,
                   .text = said->text,
                   .text_len = said->len,
                   .index = said->index,
                   .id = said->id,
                   .name = said->name,
                   .complete = said->complete};
    return r->said(r->ctx, &out) == 0;
}

static rvi_reader_setup setup_of(const rv_tools *t, rvi_said_take take, void *ctx)
{
    return (rvi_reader_setup){.family = t->family,
                              .tools = t->tools,
                              .thinking = t->thinking,
                              .opened = t->opened && !t->off,
                              .seed = t->seed,
                              .take = take,
                              .ctx = ctx};
}

rvi_check rvi_api_tools_check(const rv_tools *t)
{
    return (rvi_check){.reader = setup_of(t, NULL, NULL),
                       .choice = t->choice,
                       .one_call = t->one_call,
                       .form = {t->form, t->form_text.data, t->form_text.len}};
}

rv_status rv_tools_reader_new(rv_tools_reader **out, rv_tools *t,
                              int (*said)(void *ctx, const rv_said *said), void *ctx, rv_error *err)
{
    if (!out || !t || !said)
        return rvi_error(err, RV_E_INVALID, "rv_tools_reader_new: NULL argument");
    *out = NULL;
    const rv_allocator *heap = rvi_api_use_heap(t->m->rt);
    rv_tools_reader *r = rvi_zalloc(sizeof *r);
    rv_status st = r ? RV_OK : rvi_nomem(err, "reader");
    if (!st) {
        *r = (rv_tools_reader){.t = t, .said = said, .ctx = ctx};
        rvi_reader_setup setup = setup_of(t, pass_on, r);
        st = rvi_reader_new(&r->r, &setup, err);
    }
    if (st)
        rvi_free(r);
    else
        *out = r;
    rvi_api_leave_heap(heap);
    return st;
}

void rv_tools_reader_free(rv_tools_reader **handle)
{
    if (!handle || !*handle) return;
    rvi_reader_free((*handle)->r);
    rvi_free(*handle);
    *handle = NULL;
}

rv_status rv_tools_read(rv_tools_reader *r, const char *text, size_t len, rv_error *err)
{
    if (!r || (!text && len)) return rvi_error(err, RV_E_INVALID, "rv_tools_read: NULL argument");
    const rv_allocator *heap = rvi_api_use_heap(r->t->m->rt);
    rv_status st = rvi_reader_push(r->r, text, len, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rv_tools_read_end(rv_tools_reader *r, rv_error *err)
{
    if (!r) return rvi_error(err, RV_E_INVALID, "rv_tools_read_end: NULL argument");
    const rv_allocator *heap = rvi_api_use_heap(r->t->m->rt);
    rv_status st = rvi_reader_end(r->r, err);
    rvi_api_leave_heap(heap);
    return st;
}

rv_status rv_tools_message(rv_tools *t, const char *text, size_t len, char **message, rv_error *err)
{
    if (!t || !message || (!text && len))
        return rvi_error(err, RV_E_INVALID, "rv_tools_message: NULL argument");
    *message = NULL;
    const rv_allocator *heap = rvi_api_use_heap(t->m->rt);
    rvi_buf out = {0};
    rvi_reader_setup setup = setup_of(t, NULL, NULL);
    rv_status st = rvi_reader_message(&setup, text, len, &out, err);
    st = rvi_api_give_text_after(st, &out, message, NULL, err);
    rvi_api_leave_heap(heap);
    return st;
}

/* ---- JSON that was held to nothing ---- */

enum { MAX_CHANGES = 1000 };

typedef struct changes {
    rv_repair *items;
    size_t n;
} changes;

static void note(void *ctx, const char *what, size_t offset)
{
    changes *c = ctx;
    if (c->n < MAX_CHANGES) c->items[c->n++] = (rv_repair){what, offset};
}

static rv_status give_repaired(const rvi_buf *json, const changes *c, const rvi_buf *problem,
                               rv_repaired **out, rv_error *err)
{
    size_t list = c->n * sizeof *c->items;
    rv_repaired *r = rvi_zalloc(sizeof *r + list + json->len + problem->len + 2);
    if (!r) return rvi_nomem(err, "repair");
    rv_repair *items = (rv_repair *)(void *)(r + 1);
    char *text = (char *)(items + c->n), *why = text + json->len + 1;
    if (c->n) memcpy(items, c->items, list);
    memcpy(text, json->data, json->len);
    if (problem->len) memcpy(why, problem->data, problem->len);
    *r = (rv_repaired){text, json->len, items, c->n, !problem->len, why};
    *out = r;
    return RV_OK;
}

rv_status rv_json_repair(const rv_runtime *rt, const char *text, size_t len, const char *schema,
                         size_t schema_len, rv_repaired **out, rv_error *err)
{
    if (!rt || !out || (!text && len))
        return rvi_error(err, RV_E_INVALID, "rv_json_repair: NULL argument");
    *out = NULL;
    const rv_allocator *heap = rvi_api_use_heap(rt);
    changes c = {rvi_alloc_array(MAX_CHANGES, sizeof *c.items), 0};
    rvi_buf json = {0}, problem = {0};
    rvi_arena arena = {.max = RVI_API_CHAT_BYTES};
    const rvi_json *tree;
    rv_status st = c.items ? RV_OK : rvi_nomem(err, "repair");
    if (!st) st = rvi_json_repair(text ? text : "", len, &json, note, &c, err);
    if (!st) st = rvi_json_parse(&tree, json.data, json.len, &arena, "the mended text", err);
    if (!st && schema)
        st = rvi_validate_json(schema, schema_len, json.data, json.len, &problem, err);
    if (!st) st = give_repaired(&json, &c, &problem, out, err);
    rvi_arena_deinit(&arena);
    rvi_buf_deinit(&json);
    rvi_buf_deinit(&problem);
    rvi_free(c.items);
    rvi_api_leave_heap(heap);
    return st;
}
