/* Removing what was taught by a piece of its text. The learner finds texts by whole words; here a
 * part of a word will do, since the user sees what is meant: each lesson and judgement is looked
 * for here and forgotten by its number. */
#include "cli/forget.h"

#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "base/utf8.h"
#include "text/unicode.h"

static bool put_lower(rvi_buf *out, const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0, used; i < len; i += used) {
        uint32_t cp;
        char bytes[4];
        used = rvi_utf8_decode(text + i, len - i, &cp, NULL);
        rvi_buf_append(out, bytes, rvi_utf8_encode(rvi_unicode_to_lower(cp), bytes));
    }
    return rvi_buf_puts(out, "");
}

/* part is in lower case */
static bool contains(const char *text, const char *part)
{
    rvi_buf lower = {0};
    bool in = put_lower(&lower, text) && strstr(lower.data, part);
    rvi_buf_deinit(&lower);
    return in;
}

static const char *member(const rvi_json *x, const char *name)
{
    return rvi_json_string(rvi_json_get(x, name), "");
}

/* In the status: corrections that were taken back or corrected since. */
static const char ended[] = "ended";

typedef struct found {
    const rvi_json **items; /* corrections, those of them that ended, the rest; in the arena */
    size_t n, n_trained;
    cli_judgements judged;
    int n_steps;            /* of scores, that stay */
    const rvi_json *before; /* the status */
    rvi_arena arena;
    char left[512]; /* what could not be erased yet */
} found;

static void add(found *f, const rvi_json *x)
{
    f->items[f->n++] = x;
    f->n_trained += rvi_json_int(rvi_json_get(x, "generation"), 0) > 0 ||
                    rvi_json_bool(rvi_json_get(x, "trained"), false);
}

static rv_status find(found *f, const cli_learning *l, const char *part, rv_error *err)
{
    static const char *const members[][3] = {{"question", "answer", "answer"},
                                             {"question", "answer", "answer"},
                                             {"text", "text", "text"},
                                             {"question", "chosen", "rejected"}};
    static const char *const lists[] = {"learned", ended, "instructions", "preferences"};
    size_t most = 1;
    rv_status st = cli_learning_status(l, &f->arena, &f->before, err);
    for (size_t k = 0; !st && k < RVI_COUNT(lists); k++)
        most += rvi_json_count(rvi_json_get(f->before, lists[k]));
    if (!st && !(f->items = rvi_arena_alloc(&f->arena, most, sizeof *f->items)))
        st = rvi_nomem(err, "what to forget");
    for (size_t k = 0; !st && k < RVI_COUNT(lists); k++) {
        const rvi_json *list = rvi_json_get(f->before, lists[k]);
        for (size_t i = 0; i < rvi_json_count(list); i++) {
            const rvi_json *x = rvi_json_at(list, i);
            bool in = false;
            for (size_t m = 0; m < 3; m++) in = in || contains(member(x, members[k][m]), part);
            if (in) add(f, x);
        }
    }
    if (st) return st;
    cli_judgements *j = &f->judged;
    size_t n = 0;
    st = cli_learning_judgements(l, &f->arena, j, err);
    for (size_t i = 0; i < j->n; i++) {
        const cli_judgement x = j->list[i];
        if (contains(x.question, part) || contains(x.answer, part) || contains(x.began, part))
            j->list[n++] = x;
    }
    j->n = n;
    return st;
}

static void write_counts(const found *f, rvi_buf *out)
{
    size_t n = f->judged.n;
    if (f->n) rvi_buf_printf(out, "%zu lesson%s", f->n, f->n == 1 ? "" : "s");
    if (n) rvi_buf_printf(out, "%s%zu judgement%s", f->n ? " and " : "", n, n == 1 ? "" : "s");
}

static bool has_ended(const found *f, const rvi_json *x)
{
    const rvi_json *list = rvi_json_get(f->before, ended);
    for (size_t i = 0; i < rvi_json_count(list); i++)
        if (rvi_json_at(list, i) == x) return true;
    return false;
}

static void write_found(found *f, rvi_buf *out)
{
    for (size_t i = 0; i < f->n; i++) {
        const rvi_json *x = f->items[i];
        bool preference = rvi_json_get(x, "chosen") != NULL;
        if (rvi_json_get(x, "text"))
            rvi_buf_printf(out, "  before every chat: %s\n",
                           cli_one_line(&f->arena, member(x, "text")));
        else
            rvi_buf_printf(out, "  %s\n    %s%s%s\n",
                           cli_one_line(&f->arena, member(x, "question")),
                           preference ? "rather: " : "",
                           cli_one_line(&f->arena, member(x, preference ? "chosen" : "answer")),
                           has_ended(f, x) ? " (taken back or corrected before)" : "");
    }
    for (size_t i = 0; i < f->judged.n; i++)
        cli_judgement_write(&f->judged.list[i], &f->arena, out);
    if (out->data) cli_hush(out->data, out->len);
}

static void put_pair(rvi_buf *out, size_t before, const char *question, const char *answer)
{
    rvi_buf_puts(out, before ? ",{\"question\":" : "{\"question\":");
    rvi_json_write_string(out, question, strlen(question));
    rvi_buf_puts(out, ",\"answer\":");
    rvi_json_write_string(out, answer, strlen(answer));
    rvi_buf_putc(out, '}');
}

static void write_json(const found *f, rvi_buf *out)
{
    rvi_buf_puts(out, "{\"forgotten\":[");
    for (size_t i = 0; i < f->n; i++) {
        const rvi_json *x = f->items[i];
        put_pair(out, i, member(x, "question"),
                 member(x, rvi_json_get(x, "chosen") ? "chosen"
                           : rvi_json_get(x, "text") ? "text"
                                                     : "answer"));
    }
    rvi_buf_puts(out, "],\"judgements\":[");
    for (size_t i = 0; i < f->judged.n; i++)
        put_pair(out, i, f->judged.list[i].question, f->judged.list[i].answer);
    rvi_buf_printf(out, "],\"in_adapters\":%zu}\n", f->n_trained);
}

/* Several go only if the user, who sees them, says so: here, or before by -y. */
static rv_status confirm(found *f, const char *text, rv_error *err)
{
    rvi_buf list = {0}, line = {0};
    bool asks = rvi_os_is_terminal(stdin) && rvi_os_is_terminal(stderr), yes = false;
    write_found(f, &list);
    fputs(list.data ? list.data : "", stderr);
    if (asks) {
        rvi_buf counts = {0};
        write_counts(f, &counts);
        fprintf(stderr, "Forget these %s? [y/N] ", counts.data ? counts.data : "");
        rvi_buf_deinit(&counts);
        fflush(stderr);
        yes = cli_read_line(stdin, &line) && (line.data[0] == 'y' || line.data[0] == 'Y');
    }
    rvi_buf_deinit(&list);
    rvi_buf_deinit(&line);
    if (yes) return RV_OK;
    return asks ? rvi_error(err, RV_E_CANCELLED, "nothing was forgotten")
                : rvi_error(err, RV_E_CONFIG,
                            "'%s' is in these %zu, so nothing was forgotten: -y forgets them all, "
                            "a longer text fewer",
                            text, f->n + f->judged.n);
}

static rv_status forget_one(found *f, cli_learning *l, uint64_t event, rv_error *err)
{
    static const char still[] = "still to be erased: ";
    rv_adaptation *a = NULL;
    rv_status st = rv_learner_forget_one(l->l, event, &a, err);
    const char *left = a ? strstr(a->notes, still) : NULL;
    if (left) snprintf(f->left, sizeof f->left, "%s", left + strlen(still));
    f->n_steps += a && strstr(a->notes, "the step of");
    rv_free(a);
    return st;
}

/* The newest first: a score's step can be taken back while no later one was made from it. */
static rv_status forget_all(found *f, cli_learning *l, rv_error *err)
{
    rv_status st = RV_OK;
    for (size_t i = f->judged.n; !st && i-- > 0;)
        st = forget_one(f, l, f->judged.list[i].event, err);
    for (size_t i = 0; !st && i < f->n; i++)
        st = forget_one(f, l, (uint64_t)rvi_json_int(rvi_json_get(f->items[i], "event"), 0), err);
    return st;
}

rv_status cli_forget(cli_learning *l, const char *text, bool yes, bool json, rvi_buf *out,
                     rv_error *err)
{
    rvi_buf part = {0};
    found *f = rvi_zalloc(sizeof *f);
    rv_status st = cli_learning_check("the text to forget", text, strlen(text), err);
    if (!st && (!f || !put_lower(&part, text))) st = rvi_nomem(err, "what to forget");
    if (!st) st = find(f, l, part.data, err);
    if (!st && !f->n && !f->judged.n)
        st = rvi_error(err, RV_E_NOT_FOUND,
                       "nothing that was taught contains '%s' ('ruvllm learn status' lists it)",
                       text);
    if (!st && f->n + f->judged.n > 1 && !yes) st = confirm(f, text, err);
    if (!st) st = forget_all(f, l, err);
    if (!st) cli_learning_clean(l);
    if (!st && json) {
        write_json(f, out);
    } else if (!st) {
        rvi_buf_puts(out, "Forgotten");
        if (f->n + f->judged.n > 1) rvi_buf_putc(out, ' ');
        if (f->n + f->judged.n > 1) write_counts(f, out);
        rvi_buf_puts(out, ":\n");
        write_found(f, out);
        if (f->n_steps)
            rvi_buf_printf(out, "The step%s of %d score%s stay%s, under those of later ones.\n",
                           f->n_steps == 1 ? "" : "s", f->n_steps, f->n_steps == 1 ? "" : "s",
                           f->n_steps == 1 ? "s" : "");
        if (f->n_trained)
            rvi_buf_printf(
                out,
                "Adapters that were trained on %zu of %zu are erased%s%s; what else they held is "
                "trained again ('ruvllm learn run', or while you chat).\n",
                f->n_trained, f->n, *f->left ? ", but not everywhere yet: " : "", f->left);
    }
    if (f) rvi_arena_deinit(&f->arena);
    if (f) rvi_free(f->judged.list);
    rvi_free(f);
    rvi_buf_deinit(&part);
    return st;
}
