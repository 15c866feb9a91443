#include "cli/screen.h"

#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "base/utf8.h"
#include "text/chars.h"

enum {
    NARROWEST = 20 /* columns: a terminal with fewer is left to break lines itself */
};
static const double wondering = 0.5; /* seconds: what takes less time is not spoken of */

void cli_screen_init(cli_screen *s, FILE *f)
{
    *s = (cli_screen){.f = f, .wraps = rvi_os_is_terminal(f), .begun = rvi_os_seconds()};
}

/* ---- how far a prompt is ---- */

/* 1234567 as "1,234,567" */
static void put_count(char *out, size_t size, int n)
{
    if (n < 1000)
        snprintf(out, size, "%d", n);
    else if (n < 1000000)
        snprintf(out, size, "%d,%03d", n / 1000, n % 1000);
    else
        snprintf(out, size, "%d,%03d,%03d", n / 1000000, n / 1000 % 1000, n % 1000);
}

static void erase_prompt(cli_screen *s)
{
    if (!s->shows_prompt) return;
    s->shows_prompt = false;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

void cli_screen_prompt(cli_screen *s, int n_done, int n_prompt)
{
    const char *term = getenv("TERM");
    char done[16], all[16];
    if (n_done >= n_prompt) {
        erase_prompt(s);
        return;
    }
    if (rvi_os_seconds() - s->begun < wondering || !rvi_os_is_terminal(stderr) || !term || !*term ||
        !strcmp(term, "dumb"))
        return;
    s->shows_prompt = true;
    put_count(done, sizeof done, n_done);
    put_count(all, sizeof all, n_prompt);
    fprintf(stderr, "\rreading %s of %s tokens\033[K", done, all);
    fflush(stderr);
}

/* ---- wrapping ---- */

static bool put(cli_screen *s, const char *text, size_t len)
{
    return cli_put_text(s->f, text, len, true);
}

static bool put_spaces(cli_screen *s)
{
    bool good = true;
    for (; good && s->n_spaces; s->n_spaces--, s->column++) good = put(s, " ", 1);
    return good;
}

/* The word goes behind the spaces before it, or without them into a new line. */
static bool end_word(cli_screen *s)
{
    bool good = true;
    if (!s->word_len) return true;
    int width = rvi_os_terminal_width(s->f);
    if (s->column && s->n_spaces && width >= NARROWEST &&
        s->column + s->n_spaces + s->word_width > width) {
        s->n_spaces = s->column = 0;
        good = put(s, "\n", 1);
    }
    if (good) good = put_spaces(s) && put(s, s->word, s->word_len);
    s->column += s->word_width;
    s->word_len = 0;
    s->word_width = 0;
    return good;
}

static bool put_char(cli_screen *s, const char *bytes, size_t len, uint32_t cp)
{
    if (cp == '\n') {
        bool good = end_word(s) && put(s, "\n", 1);
        if (s->n_ticks >= 3) s->code = !s->code;
        s->column = s->n_spaces = s->n_ticks = 0;
        return good;
    }
    if (cp == '`' && s->n_ticks >= 0)
        s->n_ticks++;
    else if (s->n_ticks < 3)
        s->n_ticks = -1;
    if (s->code) return put(s, bytes, len);
    if (cp == ' ') {
        bool good = end_word(s);
        s->n_spaces++;
        return good && (s->column || put_spaces(s)); /* an indent is part of the line */
    }
    if (cp == '\t') {
        bool good = end_word(s) && put_spaces(s) && put(s, "\t", 1);
        s->column = (s->column / 8 + 1) * 8;
        return good;
    }
    int width = rvi_char_width(cp);
    /* a text of East Asia has no spaces: a line may end behind any of its characters */
    bool good = width < 2 && s->word_len + len <= sizeof s->word ? true : end_word(s);
    if (width == 2 && good && s->column + 2 > rvi_os_terminal_width(s->f)) {
        good = put(s, "\n", 1);
        s->column = 0;
    }
    memcpy(s->word + s->word_len, bytes, len);
    s->word_len += len;
    s->word_width += width;
    return good && (width < 2 || end_word(s));
}

bool cli_screen_put(cli_screen *s, const char *text, size_t len)
{
    if (len) erase_prompt(s);
    if (!s->wraps) return cli_put_text(s->f, text, len, false);
    bool good = true;
    for (size_t i = 0, used; good && i < len; i += used) {
        uint32_t cp;
        used = rvi_utf8_decode(text + i, len - i, &cp, NULL);
        good = put_char(s, text + i, used, cp);
    }
    return good;
}

bool cli_screen_end(cli_screen *s)
{
    erase_prompt(s);
    return !s->wraps || end_word(s);
}
