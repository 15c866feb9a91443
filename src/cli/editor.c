/* Reading lines from a person at a terminal.
 *
 * libedit restores the terminal's modes whenever it does not read; the mode in which a terminal
 * marks pasted text is begun and ended here around each read. */
#include "cli/editor.h"

#include <errno.h>
#include <histedit.h>
#include <limits.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/os.h"
#include "cli/generation.h"

enum {
    MAX_ENTRIES = 1000,           /* of the history */
    MAX_HISTORY_FILE = 1 << 20,   /* bytes; a larger one is written anew with what was kept of it */
    MAX_HISTORY_ENTRY = 64 << 10, /* bytes; longer ones are not kept in the file */
    MAX_PASTE = 4 << 20,          /* characters */
};

struct cli_editor {
    EditLine *el;
    History *history;
    rvi_buf history_path; /* no data: only in memory */
    FILE *screen;
    const char *const *commands;
    bool escapes;
    char prompt[64];
};

const char cli_editor_last_words[] = "\033[?2004l\n";

/* ---- keys ---- */

static char *show_prompt(EditLine *el)
{
    cli_editor *e = NULL;
    el_get(el, EL_CLIENTDATA, &e);
    return e->prompt;
}

/* libedit's own reader does not see an interrupt that comes just before it waits, or together with
 * a key. Bytes that are no text are passed over. */
static int read_char(EditLine *el, wchar_t *out)
{
    char bytes[MB_LEN_MAX];
    size_t n = 0;
    (void)el;
    for (;;) {
        int got = rvi_interrupt_read(&bytes[n], cli_interrupted);
        if (got <= 0) return got;
        size_t used = mbrtowc(out, bytes, ++n, &(mbstate_t){0});
        if (used == (size_t)-1 && n > 1) { /* the last one may begin another character */
            bytes[0] = bytes[n - 1];
            used = mbrtowc(out, bytes, n = 1, &(mbstate_t){0});
        }
        if (used == (size_t)-2 && n < sizeof bytes) continue;
        if (used != (size_t)-1 && used != (size_t)-2) return 1;
        n = 0;
    }
}

/* Is `word` a command that begins with the len characters of text? */
static bool begins_with(const char *word, const wchar_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!word[i] || (wchar_t)(unsigned char)word[i] != text[i]) return false;
    return true;
}

/* Tab: completes the name of a command as far as it is certain, else shows which there are.
 * Anywhere else it is a character like others. */
static unsigned char complete(EditLine *el, int key)
{
    cli_editor *e = NULL;
    const LineInfoW *line = el_wline(el);
    size_t len = (size_t)(line->cursor - line->buffer), n = 0, sure = 0;
    const char *first = NULL;
    (void)key;
    el_get(el, EL_CLIENTDATA, &e);
    if (!len || line->buffer[0] != L'/' || wmemchr(line->buffer, L' ', len))
        return el_winsertstr(el, L"\t") ? CC_ERROR : CC_REFRESH;
    const wchar_t *typed = line->buffer + 1;
    len--;
    for (const char *const *w = e->commands; *w; w++) {
        if (!begins_with(*w, typed, len)) continue;
        if (!n++) sure = strlen(first = *w);
        for (size_t i = 0; i < sure; i++)
            if (first[i] != (*w)[i]) sure = i;
    }
    if (!n) return CC_ERROR;
    if (sure > len || n == 1) {
        wchar_t rest[64];
        size_t m = 0;
        for (size_t i = len; i < sure && m + 2 < RVI_COUNT(rest); i++)
            rest[m++] = (wchar_t)first[i];
        if (n == 1) rest[m++] = L' ';
        rest[m] = 0;
        return el_winsertstr(el, rest) ? CC_ERROR : CC_REFRESH;
    }
    fputc('\n', e->screen);
    for (const char *const *w = e->commands; *w; w++)
        if (begins_with(*w, typed, len)) fprintf(e->screen, "/%s  ", *w);
    fputc('\n', e->screen);
    return CC_REDISPLAY;
}

/* Line ends are one '\n' each; other control characters than tab are left out. */
static size_t clean_paste(wchar_t *text, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        wchar_t c = text[i];
        if (c == L'\r') c = i + 1 < n && text[i + 1] == L'\n' ? 0 : L'\n';
        if ((c >= 0x20 && (c < 0x7F || c >= 0xA0)) || c == L'\n' || c == L'\t') text[kept++] = c;
    }
    return kept;
}

/* Called at the mark where pasted text begins: takes all of it up to the mark where it ends. */
static unsigned char take_paste(EditLine *el, int key)
{
    static const wchar_t end[] = L"\033[201~";
    enum { END_LEN = RVI_COUNT(end) - 1 };
    wchar_t *text = NULL, c;
    size_t n = 0, cap = 0;
    bool lost = false;
    (void)key;
    while (el_wgetc(el, &c) == 1) {
        if (n + 1 >= cap && !lost) {
            cap = cap ? cap * 2 : 1024;
            wchar_t *grown = cap > MAX_PASTE ? NULL : rvi_realloc_array(text, cap, sizeof *text);
            if (grown) text = grown;
            lost = !grown;
        }
        if (lost && n >= END_LEN) { /* keep only what the end mark can be seen in */
            memmove(text, text + n - END_LEN + 1, (END_LEN - 1) * sizeof *text);
            n = END_LEN - 1;
        }
        if (!text) return CC_ERROR;
        text[n++] = c;
        if (n >= END_LEN && !wmemcmp(text + n - END_LEN, end, END_LEN)) {
            n -= END_LEN;
            break;
        }
    }
    bool inserted = false;
    if (text && !lost) {
        text[n = clean_paste(text, n)] = 0;
        inserted = !n || el_winsertstr(el, text) == 0;
    }
    rvi_free(text);
    return inserted ? CC_REFRESH : CC_REFRESH_BEEP;
}

/* ---- history ---- */

static void load_history(cli_editor *e)
{
    HistEvent event;
    uint64_t size = 0;
    if (!e->history_path.data || rvi_os_stat(e->history_path.data, &size) != RVI_OS_FILE) return;
    int n = history(e->history, &event, H_LOAD, e->history_path.data);
    if (n >= 0 && size > MAX_HISTORY_FILE)
        history(e->history, &event, H_SAVE, e->history_path.data);
}

void cli_editor_remember(cli_editor *e, const char *text, size_t len)
{
    HistEvent event;
    rvi_buf entry = {0};
    if (len && !memchr(text, 0, len) && rvi_buf_append(&entry, text, len)) {
        int added = history(e->history, &event, H_ENTER, entry.data);
        FILE *f = added > 0 && e->history_path.data && len <= MAX_HISTORY_ENTRY
                      ? fopen(e->history_path.data, "ab")
                      : NULL;
        if (f) { /* libedit gives the file mode 0600 before it writes to it */
            if (!fseek(f, 0, SEEK_END)) history(e->history, &event, H_NSAVE_FP, (size_t)1, f);
            fclose(f);
        }
    }
    rvi_buf_deinit(&entry);
}

/* ---- the editor ---- */

rv_status cli_editor_new(cli_editor **out, FILE *screen, bool escapes, const char *const *commands,
                         const char *path, rv_error *err)
{
    HistEvent event;
    cli_editor *e = rvi_zalloc(sizeof *e);
    *out = e;
    if (!e) return rvi_nomem(err, "line editor");
    /* Text is UTF-8 here whatever the locale says; libedit asks the locale. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1) (void)setlocale(LC_CTYPE, "C.UTF-8");
    e->screen = screen;
    e->escapes = escapes;
    e->commands = commands;
    e->el = el_init("ruvllm", stdin, screen, stderr);
    e->history = history_init();
    bool named = !path || rvi_buf_puts(&e->history_path, path);
    if (!e->el || !e->history || !named) {
        cli_editor_free(out);
        return rvi_nomem(err, "line editor");
    }
    history(e->history, &event, H_SETSIZE, MAX_ENTRIES);
    history(e->history, &event, H_SETUNIQUE, 1);
    load_history(e);
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_SIGNAL, 1); /* modes are restored before a signal is acted upon */
    el_set(e->el, EL_PROMPT_ESC, show_prompt, '\1');
    el_set(e->el, EL_HIST, history, e->history);
    el_wset(e->el, EL_ADDFN, L"take-paste", L"takes pasted text as one piece", take_paste);
    el_set(e->el, EL_BIND, "\033[200~", "take-paste", NULL);
    el_wset(e->el, EL_ADDFN, L"complete-command", L"completes a command", complete);
    el_set(e->el, EL_BIND, "^I", "complete-command", NULL);
    el_wset(e->el, EL_GETCFN, read_char);
    (void)el_source(e->el, NULL); /* the user's .editrc */
    return RV_OK;
}

void cli_editor_free(cli_editor **at)
{
    cli_editor *e = *at;
    if (!e) return;
    if (e->el) el_end(e->el);
    if (e->history) history_end(e->history);
    rvi_buf_deinit(&e->history_path);
    rvi_free(e);
    *at = NULL;
}

static void mark_pastes(cli_editor *e, bool on)
{
    if (!e->escapes) return;
    fputs(on ? "\033[?2004h" : "\033[?2004l", e->screen);
    fflush(e->screen);
}

cli_read cli_editor_read(cli_editor *e, const char *prompt, bool bold, rvi_buf *line)
{
    int n = 0;
    /* libedit shows what is between two \1 with the character behind it, so one must follow */
    snprintf(e->prompt, sizeof e->prompt, bold ? "\1\033[1m\1%s\1\033[0m\1 " : "%s ", prompt);
    line->len = 0;
    mark_pastes(e, true);
    el_set(e->el, EL_PREP_TERM, 1); /* before the prompt invites to type */
    errno = 0;
    const char *text = el_gets(e->el, &n);
    int code = errno;
    const LineInfo *left = el_line(e->el);
    bool empty = left->lastchar == left->buffer;
    mark_pastes(e, false);
    if (!text && n < 0 && code == EINTR) {
        fputs(empty ? "\n" : "^C\n", e->screen);
        return empty ? CLI_READ_INTERRUPT_EMPTY : CLI_READ_INTERRUPT;
    }
    if (!text || n <= 0) {
        fputc('\n', e->screen);
        return CLI_READ_END;
    }
    size_t len = (size_t)n;
    if (text[len - 1] == '\n') len--;
    if (!rvi_buf_append(line, text, len) || !rvi_buf_puts(line, "")) return CLI_READ_END;
    line->data[line->len] = 0;
    return CLI_READ_LINE;
}
