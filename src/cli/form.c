/* --schema, --json-mode, --regex, --grammar, --choices: from options to a grammar. */
#include "cli/form.h"

#include <string.h>

#include "base/error.h"
#include "base/json.h"

/* White space in a row in JSON: enough to indent, and no model fills a page with it. */
enum { MAX_BLANKS = 24 };

void cli_form_rows(cli_form *f, cli_option *rows)
{
    const cli_option own[] = {
        {"schema", 0, CLI_TEXT, &f->schema, NULL},
        {"json-mode", 0, CLI_FLAG, &f->json_mode, NULL},
        {"regex", 0, CLI_TEXT, &f->regex, NULL},
        {"grammar", 0, CLI_TEXT, &f->gbnf, NULL},
        {"choices", 0, CLI_TEXT, &f->choices, NULL},
    };
    _Static_assert(RVI_COUNT(own) == CLI_FORM_OPTIONS, "one row each");
    memcpy(rows, own, sizeof own);
}

static int count(const cli_form *f)
{
    return (f->schema != NULL) + (f->regex != NULL) + (f->gbnf != NULL) + (f->choices != NULL) +
           f->json_mode;
}

bool cli_form_given(const cli_form *f)
{
    return count(f) > 0;
}

/* Two commas, or one at an end, are more likely a slip than a wish. */
static bool has_empty(const char *choices)
{
    return *choices != '[' &&
           (*choices == ',' || choices[strlen(choices) - 1] == ',' || strstr(choices, ",,"));
}

int cli_form_check(const cli *c, const cli_form *f)
{
    if (count(f) > 1)
        return cli_usage(c, "give one of --schema, --json-mode, --regex, --grammar and --choices");
    if (f->choices && !*f->choices) return cli_usage(c, "--choices: nothing to choose from");
    if (f->choices && has_empty(f->choices))
        return cli_usage(c, "--choices: one of '%s' is empty; a JSON list may hold \"\"",
                         f->choices);
    if (f->regex && !*f->regex) return cli_usage(c, "--regex: the expression is empty");
    return CLI_OK;
}

/* "a,b" as a JSON list; what is one already stays as it is. */
static rv_status list_choices(const char *choices, rvi_buf *out, rv_error *err)
{
    if (*choices == '[') return rvi_buf_puts(out, choices) ? RV_OK : rvi_nomem(err, "choices");
    rvi_buf_putc(out, '[');
    for (const char *at = choices;; at++) {
        size_t len = strcspn(at, ",");
        rvi_json_write_string(out, at, len);
        at += len;
        if (!*at) break;
        rvi_buf_putc(out, ',');
    }
    return rvi_buf_putc(out, ']') ? RV_OK : rvi_nomem(err, "choices");
}

static rv_grammar_kind grammar_kind(const char *file)
{
    size_t len = strlen(file);
    return len > 5 && !strcmp(file + len - 5, ".lark") ? RV_GRAMMAR_LARK : RV_GRAMMAR_GBNF;
}

/* JSON and rules may stand in the command line themselves: no file is called like that. */
rv_status cli_read_source(const char *given, rvi_buf *text, rv_error *err)
{
    bool itself = *given == '{' || *given == '[' || strstr(given, "::=");
    if (!itself) return cli_read_file(given, text, err);
    return rvi_buf_puts(text, given) ? RV_OK : rvi_nomem(err, "text");
}

rv_status cli_form_read(const cli_form *f, rv_grammar_kind *kind, rvi_buf *text, rv_error *err)
{
    const char *file = f->schema ? f->schema : f->gbnf;
    *kind = f->schema    ? RV_GRAMMAR_SCHEMA
            : f->regex   ? RV_GRAMMAR_REGEX
            : f->gbnf    ? grammar_kind(f->gbnf)
            : f->choices ? RV_GRAMMAR_CHOICES
                         : RV_GRAMMAR_JSON;
    if (file) return cli_read_source(file, text, err);
    if (f->choices) return list_choices(f->choices, text, err);
    if (f->regex && !rvi_buf_puts(text, f->regex)) return rvi_nomem(err, "regular expression");
    return RV_OK;
}

rv_status cli_form_grammar(const cli_form *f, const rv_model *m, rv_grammar **out, rv_error *err)
{
    rv_grammar_options o = {.size = sizeof o, .max_blanks = MAX_BLANKS, .canonical = 1};
    rv_grammar_kind kind;
    rvi_buf text = {0};
    *out = NULL;
    if (!cli_form_given(f)) return RV_OK;
    rv_status st = cli_form_read(f, &kind, &text, err);
    if (!st) st = rv_grammar_new(out, m, kind, text.data ? text.data : "", text.len, &o, err);
    rvi_buf_deinit(&text);
    return st;
}
