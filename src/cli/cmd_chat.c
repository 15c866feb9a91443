/* chat: a conversation on a terminal, or line by line from standard input.
 *
 * The conversation is a list of messages, rendered again for each turn; the session reuses the
 * common prefix. A turn that fails or does not fit leaves the conversation unchanged. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/os.h"
#include "cli/chat_state.h"
#include "cli/explain.h"
#include "cli/screen.h"
#include "cli/settings.h"

/* ---- saying things ---- */

/* A line, broken between words. */
static void say(const cli_chat_state *t, const char *text)
{
    cli_screen screen;
    cli_screen_init(&screen, t->screen);
    (void)cli_screen_put(&screen, text, strlen(text));
    (void)cli_screen_end(&screen);
    fputc('\n', t->screen);
}

void cli_remark(const cli_chat_state *t, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (t->colour) fputs("\033[2m", t->screen);
    say(t, text);
    if (t->colour) fputs("\033[0m", t->screen);
    fflush(t->screen);
}

void cli_remark_error(const cli_chat_state *t, const rv_error *err)
{
    rv_error shown = *err;
    cli_hush_line(shown.text, strlen(shown.text));
    cli_remark(t, "%s", shown.text[0] ? shown.text : rv_status_text(shown.code));
}

static void remark_full(const cli_chat_state *t, const char *what, size_t n_tokens)
{
    int context = rv_session_context(t->session);
    cli_remark(t, "%s: %zu tokens, and the context holds %d. Nothing is lost:", what, n_tokens,
               context);
    cli_remark(t, "  /drop N forgets the N oldest turns, /clear all of them;");
    if (t->info.n_context > context)
        cli_remark(
            t,
            "  or /save FILE, begin again with --ctx N (this model was made for up to %d), and "
            "/load FILE.",
            t->info.n_context);
    else
        cli_remark(t, "  this model was not made for more than %d tokens.", context);
}

/* ---- turns ---- */

static void remark_cut(const cli_chat_state *t, const rv_answer *g, bool full)
{
    if (full && t->editor)
        remark_full(t, "The answer ends here because the context is full",
                    (size_t)g->n_prompt + g->n_ids);
    else if (full)
        cli_remark(t, "(cut at %zu tokens, where the context is full; --ctx N makes it larger)",
                   g->n_ids);
    else
        cli_remark(t, "(cut at %zu tokens; %s N allows more)", g->n_ids, t->editor ? "/max" : "-n");
}

/* In a pipe, what nobody there has asked for, once. */
static void remark_answer(cli_chat_state *t, const rv_answer *g)
{
    bool full = (size_t)g->n_prompt + g->n_ids >= (size_t)rv_session_context(t->session);
    bool cut = g->finish == RV_FINISH_LENGTH;
    if (cut && (t->editor || (!t->told_cut && (full || !t->g->max_given)))) {
        remark_cut(t, g, full);
        t->told_cut = true;
    }
    if (!t->editor) return;
    if (g->finish == RV_FINISH_CANCELLED) cli_remark(t, "(stopped)");
    if (t->c->verbose)
        cli_remark(t, "%zu tokens, %.1f/s; prompt %d, %d of it reused, %.2f s; seed %llu", g->n_ids,
                   cli_rate(g->n_ids, g->seconds), g->n_prompt, g->n_reused, g->prompt_seconds,
                   (unsigned long long)t->g->sampling.seed);
}

/* How many tokens the last message has without the turns before it. */
static rv_status count_alone(const cli_chat_state *t, size_t *n, rv_error *err)
{
    const cli_conversation *talk = &t->talk;
    cli_message kept[2];
    cli_conversation alone = {
        .messages = kept, .others = talk->others, .others_len = talk->others_len};
    int32_t *ids = NULL;
    if (talk->n > 1 && talk->messages[0].is_system) kept[alone.n++] = talk->messages[0];
    kept[alone.n++] = talk->messages[talk->n - 1];
    rv_status st = cli_conversation_ids(&alone, t->model.m, t->learning.l, t->g->special, &t->now,
                                        &ids, n, err);
    rv_free(ids);
    return st;
}

/* The conversation has n_tokens with its last message and does not fit. Says what can be done: on a
 * terminal at once, elsewhere by the error. */
static rv_status refuse_message(const cli_chat_state *t, size_t n_tokens, rv_error *err)
{
    int context = rv_session_context(t->session), most = t->info.n_context;
    size_t n_alone = 0;
    char larger[128] = "";
    rv_status st = count_alone(t, &n_alone, err);
    if (st) return st;
    bool alone = n_alone >= (size_t)context;
    if (most > context && n_alone < (size_t)most)
        snprintf(larger, sizeof larger, "%s --ctx N (this model was made for up to %d)",
                 alone ? ", or begin again with" : "; more fits with", most);
    if (t->editor && alone)
        cli_remark(t,
                   "This message does not fit by itself: %zu tokens, and the context holds %d. "
                   "Shorten it%s.",
                   n_alone, context, larger);
    else if (t->editor)
        remark_full(t, "The conversation with this message does not fit", n_tokens);
    else if (alone)
        return rvi_error(err, RV_E_TOO_LONG,
                         "this message does not fit by itself: %zu tokens, and the context holds "
                         "%d; shorten it%s",
                         n_alone, context, larger);
    else
        return rvi_error(err, RV_E_TOO_LONG,
                         "the conversation with this message does not fit: %zu tokens, and the "
                         "context holds %d; a line /drop N before it forgets the N oldest turns, "
                         "/clear all of them%s",
                         n_tokens, context, larger);
    return RV_OK;
}

rv_status cli_chat_begin_learned(cli_chat_state *t, rv_error *err)
{
    rvi_buf json = {0};
    t->is_captured = false;
    if (!t->learning.l) return RV_OK;
    rv_status st = cli_conversation_json(&t->talk, &json, err);
    rv_free(t->plan);
    t->plan = NULL;
    if (!st) st = cli_conversation_begin(t->learning.l, t->session, &json, &t->plan, err);
    rvi_buf_deinit(&json);
    return st;
}

rv_status cli_chat_answer(cli_chat_state *t, bool *answered, rv_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    rv_answer *g = NULL;
    bool full = false;
    *answered = false;
    rv_status st = cli_conversation_ids(&t->talk, t->model.m, t->learning.l, t->g->special, &t->now,
                                        &ids, &n, err);
    if (!st && n >= (size_t)rv_session_context(t->session)) {
        full = true;
        st = refuse_message(t, n, err);
    }
    if (!st && !full) {
        if (!t->g->seed_given && !t->same_seed) t->g->sampling.seed = rvi_os_random();
        st = cli_chat_begin_learned(t, err);
        int most = t->g->options.max_tokens;
        t->g->options.max_tokens = cli_generation_most(t->g, t->model.m, t->plan);
        if (!st) st = cli_answer(t->g, t->session, ids, n, true, &g, err);
        t->g->options.max_tokens = most;
        fputc('\n', stdout);
        if (fflush(stdout) && !st)
            st = rvi_error(err, RV_E_IO, "cannot write the answer: %s", strerror(errno));
        /* what came before a failure is part of the conversation too */
        *answered = g && (g->text_len || (!st && g->finish != RV_FINISH_CANCELLED));
        if (*answered) {
            t->last = (cli_last_answer){
                true,       g->n_prompt,        g->n_reused, g->n_ids, g->prompt_seconds,
                g->seconds, t->g->sampling.seed};
            t->is_captured = true;
        }
        rv_error add = {0};
        if (*answered && cli_conversation_add(&t->talk, "assistant", g->text, g->text_len, &add)) {
            *answered = false;
            if (!st) {
                *err = add;
                st = add.code;
            }
        }
        if (!st) remark_answer(t, g);
    }
    rv_free(g);
    rv_free(ids);
    return st;
}

static rv_status turn(cli_chat_state *t, const char *text, size_t len, rv_error *err)
{
    bool answered = false;
    size_t before = t->talk.n;
    rv_status st = cli_conversation_add(&t->talk, "user", text, len, err);
    if (!st) st = cli_chat_answer(t, &answered, err);
    if (!answered) {
        cli_conversation_cut(&t->talk, before);
        if (t->editor)
            cli_remark(t,
                       "(your message is not part of the conversation; arrow up brings it back)");
    }
    return st;
}

/* ---- commands ---- */

typedef struct command {
    const char *name, *argument, *help; /* argument "": it takes none */
    void (*run)(cli_chat_state *t, const char *argument);
} command;

static void show_help(cli_chat_state *t, const char *argument);

static void set_system(cli_chat_state *t, const char *argument)
{
    rvi_buf text = {0};
    rv_error err = {0};
    if (*argument) {
        if (cli_conversation_set_system(&t->talk, strcmp(argument, "-") ? argument : NULL, &err))
            cli_remark_error(t, &err);
        else
            cli_remark(t, "The conversation has %s from its first message on.",
                       strcmp(argument, "-") ? "this system message" : "no system message");
    } else if (cli_conversation_system(&t->talk, &text)) {
        cli_put_text(t->screen, text.data ? text.data : "", text.len, true);
        fputc('\n', t->screen);
    } else {
        cli_remark(t, "There is no system message; /system TEXT sets one.");
    }
    rvi_buf_deinit(&text);
}

static void clear(cli_chat_state *t, const char *argument)
{
    (void)argument;
    cli_conversation_cut(&t->talk, t->talk.n && t->talk.messages[0].is_system);
    t->last = (cli_last_answer){0};
    cli_remark(t, "A new conversation%s.", t->talk.n ? " with the same system message" : "");
}

static void drop(cli_chat_state *t, const char *argument)
{
    char *end;
    long n = *argument ? strtol(argument, &end, 10) : 1;
    if (*argument && (*end || n < 1)) {
        cli_remark(t, "/drop takes a whole number of turns, at least 1.");
        return;
    }
    size_t dropped = cli_conversation_drop_turns(&t->talk, (size_t)n);
    cli_remark(t, "%zu turn%s forgotten.", dropped, dropped == 1 ? "" : "s");
}

/* FILE as the user means it: "~/" is the home directory, and a leading dash is part of a name. */
static bool file_name(const cli_chat_state *t, const char *argument, rvi_buf *path)
{
    const char *home = getenv("HOME");
    if (!*argument)
        cli_remark(t, "A file name is needed.");
    else if (!strncmp(argument, "~/", 2) && home && *home)
        rvi_buf_printf(path, "%s%s", home, argument + 1);
    else
        rvi_buf_printf(path, *argument == '-' ? "./%s" : "%s", argument);
    return path->data != NULL;
}

static void save_file(cli_chat_state *t, const char *argument, bool replaces)
{
    rvi_buf path = {0};
    rv_error err = {0};
    uint64_t size = 0;
    if (file_name(t, argument, &path)) {
        if (!replaces && rvi_os_stat(path.data, &size) == RVI_OS_FILE && size)
            cli_remark(t, "%s exists; /save! %s replaces it.", argument, argument);
        else if (cli_conversation_save(&t->talk, path.data, &err))
            cli_remark_error(t, &err);
        else
            cli_remark(t, "%zu message%s saved.", t->talk.n, t->talk.n == 1 ? "" : "s");
    }
    rvi_buf_deinit(&path);
}

static void save(cli_chat_state *t, const char *argument)
{
    save_file(t, argument, false);
}

static void replace(cli_chat_state *t, const char *argument)
{
    save_file(t, argument, true);
}

/* A conversation that the model's template refuses is not taken. */
static rv_status load_file(cli_chat_state *t, const char *path, rv_error *err)
{
    cli_conversation loaded = {0};
    int32_t *ids = NULL;
    size_t n;
    if (rvi_os_stat(path, NULL) == RVI_OS_OTHER)
        return rvi_error(err, RV_E_IO, "%s: not a regular file", path);
    rv_status st = cli_conversation_load(&loaded, path, err);
    if (!st && loaded.n)
        st =
            cli_conversation_ids(&loaded, t->model.m, t->learning.l, false, &t->now, &ids, &n, err);
    if (st) {
        cli_conversation_deinit(&loaded);
    } else {
        cli_conversation_deinit(&t->talk);
        t->talk = loaded;
        t->last = (cli_last_answer){0};
        t->is_captured = false;
    }
    rv_free(ids);
    return st;
}

static void load(cli_chat_state *t, const char *argument)
{
    rvi_buf path = {0};
    rv_error err = {0};
    if (file_name(t, argument, &path)) {
        if (load_file(t, path.data, &err)) {
            cli_remark_error(t, &err);
            cli_remark(t, "The conversation is as it was.");
        } else {
            cli_remark(t, "%zu message%s loaded.", t->talk.n, t->talk.n == 1 ? "" : "s");
        }
    }
    rvi_buf_deinit(&path);
}

static void set_temperature(cli_chat_state *t, const char *argument)
{
    const char *end;
    float v = (float)rvi_number_parse(argument, &end);
    if (*argument && (*end || !isfinite(v) || v < 0))
        cli_remark(t, "/temp takes a number, at least 0.");
    else if (*argument)
        cli_generation_set_temperature(t->g, v);
    cli_remark(t, "Temperature %g.", (double)cli_generation_temperature(t->g));
}

static void set_max(cli_chat_state *t, const char *argument)
{
    char *end;
    errno = 0;
    long v = strtol(argument, &end, 10);
    if (*argument && (*end || errno || v < 1 || v > 1000000000)) {
        cli_remark(t, "/max takes a whole number, at least 1.");
    } else if (*argument) {
        t->g->options.max_tokens = (int)v;
        t->g->max_given = true;
    }
    cli_remark(t, "Answers have at most %d tokens.", t->g->options.max_tokens);
}

static void set_seed(cli_chat_state *t, const char *argument)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(argument, &end, 10);
    if (*argument && (*end || errno || *argument == '-')) {
        cli_remark(t, "/seed takes a whole number.");
    } else if (*argument) {
        t->g->sampling.seed = v;
        t->g->seed_given = true;
    }
    if (t->g->seed_given)
        cli_remark(t, "Seed %llu for every answer.", (unsigned long long)t->g->sampling.seed);
    else
        cli_remark(t, "A new seed for every answer.");
}

static void show_tokens(cli_chat_state *t, const char *argument)
{
    int32_t *ids = NULL;
    size_t n = 0;
    rv_error err = {0};
    (void)argument;
    if (t->talk.n &&
        cli_conversation_ids(&t->talk, t->model.m, t->learning.l, false, &t->now, &ids, &n, &err))
        cli_remark_error(t, &err);
    else
        cli_remark(t, "%zu of %d tokens of the context are used.", n,
                   rv_session_context(t->session));
    rv_free(ids);
    if (t->last.made)
        cli_remark(t,
                   "The last answer: prompt %d tokens (%d reused, the rest %.1f tok/s), answer %zu "
                   "tokens (%.1f tok/s).",
                   t->last.n_prompt, t->last.n_reused,
                   cli_rate((size_t)(t->last.n_prompt - t->last.n_reused), t->last.prompt_seconds),
                   t->last.n_answer, cli_rate(t->last.n_answer, t->last.seconds));
}

static void quit(cli_chat_state *t, const char *argument)
{
    (void)argument;
    t->quit = true;
}

static const command commands[] = {
    {"system", "[TEXT|-]", "show the system message, set it, or (-) remove it", set_system},
    {"clear", "", "begin a new conversation", clear},
    {"drop", "[N]", "forget the N oldest turns (1)", drop},
    {"save", "FILE", "write the conversation as JSON to a new file", save},
    {"save!", "FILE", "the same, and replace a conversation that is there", replace},
    {"load", "FILE", "replace the conversation by a saved one", load},
    {"temp", "[T]", "temperature; 0: the most likely token each time", set_temperature},
    {"max", "[N]", "maximum tokens of an answer", set_max},
    {"seed", "[N]", "the same seed gives the same answer", set_seed},
    {"tokens", "", "how much of the context is used, and the speed", show_tokens},
    {"good", "", "a good answer: more like it", cli_chat_good},
    {"bad", "", "a bad answer: not this one again", cli_chat_bad},
    {"fix", "ANSWER", "the right answer to the last question (see /fix)", cli_chat_fix},
    {"score", "0..1", "how good the last answer was", cli_chat_score},
    {"undo", "", "undo the last of these", cli_chat_undo},
    {"learned", "", "what was learned, and what is not trained yet", cli_chat_learned},
    {"help", "", "this list", show_help},
    {"quit", "", "leave (as Ctrl-D does)", quit},
};

/* Ends with NULL. */
static const char *const *command_names(void)
{
    static const char *names[RVI_COUNT(commands) + 1];
    for (size_t i = 0; i < RVI_COUNT(commands); i++) names[i] = commands[i].name;
    return names;
}

static void show_help(cli_chat_state *t, const char *argument)
{
    (void)argument;
    for (size_t i = 0; i < RVI_COUNT(commands); i++)
        fprintf(t->screen, "  /%-7s %-9s %s\n", commands[i].name, commands[i].argument,
                commands[i].help);
    say(t, "A line is a message; // begins one with a slash.");
    say(t, "After /fix \"\"\" all lines up to one of \"\"\" are the answer.");
    if (t->editor)
        say(t, "A line that ends in a backslash goes on in the next one; between two lines of "
               "\"\"\" all lines are one message. Tab completes a command. Ctrl-C stops an answer "
               "or clears the line; pressed twice it leaves.");
}

/* The command that a line "/name argument" names, NULL: none. */
static const command *find_command(const char *line)
{
    size_t len = strcspn(line + 1, " \t\n");
    for (size_t i = 0; i < RVI_COUNT(commands); i++)
        if (strlen(commands[i].name) == len && !memcmp(commands[i].name, line + 1, len))
            return &commands[i];
    return NULL;
}

/* line: "/name argument". What a command makes of its argument it says itself. */
static rv_status run_command(cli_chat_state *t, const rvi_buf *line, rv_error *err)
{
    const char *name = line->data + 1;
    size_t len = strcspn(name, " \t\n");
    const char *argument = name + len + strspn(name + len, " \t\n");
    rvi_buf trimmed = {0};
    size_t end = strlen(argument);
    if (memchr(line->data, 0, line->len))
        return rvi_error(err, RV_E_INVALID,
                         "a command cannot hold a NUL character; nothing was done");
    while (end && strchr(" \t\n", argument[end - 1])) end--;
    if (!rvi_buf_append(&trimmed, argument, end) || !rvi_buf_puts(&trimmed, ""))
        return rvi_nomem(err, "command");
    const command *cmd = find_command(line->data);
    if (cmd && !*cmd->argument && *trimmed.data)
        cli_remark(t, "/%s takes nothing behind it; nothing was done.", cmd->name);
    else if (cmd)
        cmd->run(t, trimmed.data);
    rvi_buf_deinit(&trimmed);
    if (cmd) return RV_OK;
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", (int)RVI_MIN(len, sizeof shown - 1), name);
    const char *near = cli_nearest(shown, command_names());
    cli_remark(
        t,
        "There is no command /%s.%s%s%s /help lists the commands; // begins a message with a "
        "slash.",
        shown, near ? " Did you mean /" : "", near ? near : "", near ? "?" : "");
    return RV_OK;
}

/* ---- reading ---- */

/* Without the spaces behind it. */
static size_t line_end(const rvi_buf *line)
{
    size_t len = line->len;
    while (len && strchr(" \t\r", line->data[len - 1])) len--;
    return len;
}

static bool is_quotes(const rvi_buf *line)
{
    return line_end(line) == 3 && !memcmp(line->data, "\"\"\"", 3);
}

/* A command whose text is the block that follows it: these quotes are its only word, or its last
 * one behind options. */
static bool opens_block(const rvi_buf *line)
{
    size_t len = line_end(line);
    if (len < 5 || memcmp(line->data + len - 3, "\"\"\"", 3)) return false;
    const char *at = line->data + strcspn(line->data, " \t"), *quotes = line->data + len - 3;
    while (at < quotes) {
        at += strspn(at, " \t");
        if (at < quotes && strncmp(at, "--", 2)) return false;
        at += strcspn(at, " \t");
    }
    return at > quotes;
}

/* A line of several was pasted. Where it has a block as a whole, or the rest of one that is open,
 * with the quotes that end it, that goes into the message: true. */
static bool take_pasted(const rvi_buf *line, bool block, rvi_buf *message, bool *is_command)
{
    size_t last = line->len, n = 0;
    while (last && line->data[last - 1] != '\n') last--;
    rvi_buf end = {.data = line->data + last, .len = line->len - last}, head = {.data = line->data};
    if (!last || !is_quotes(&end)) return false;
    if (!block) {
        head.len = (size_t)((char *)memchr(line->data, '\n', last) - line->data);
        n = head.len + 1;
        bool opens = line->data[0] == '/' && line->data[1] != '/' && opens_block(&head);
        if (!opens && !is_quotes(&head)) return false;
        *is_command = opens;
        if (opens) rvi_buf_append(message, line->data, line_end(&head) - 3);
        if (opens) rvi_buf_putc(message, '\n');
    }
    if (last > n) rvi_buf_append(message, line->data + n, last - n - 1);
    return true;
}

static cli_read read_line(cli_chat_state *t, bool first, rvi_buf *line)
{
    if (!t->editor) {
        t->n_lines++;
        return !cli_interrupted() && cli_read_line(stdin, line) ? CLI_READ_LINE : CLI_READ_END;
    }
    cli_interrupts_reading(true);
    cli_read r = cli_editor_read(t->editor, first ? ">" : ".", t->colour, line);
    cli_interrupts_reading(false);
    return r == CLI_READ_INTERRUPT_EMPTY && !first ? CLI_READ_INTERRUPT : r;
}

/* One message or command: a line, or a command with the block that it opens; on a terminal also a
 * block between quotes, and lines that go on after a backslash. *open: the input ended within a
 * block. */
static cli_read read_message(cli_chat_state *t, rvi_buf *line, rvi_buf *message, bool *is_command,
                             bool *open)
{
    bool block = false, more = false;
    message->len = 0;
    *is_command = *open = false;
    do {
        bool first = !block && !more;
        cli_read r = read_line(t, first, line);
        if (r == CLI_READ_END) *open = block;
        if (r != CLI_READ_LINE) return r;
        if (!more && take_pasted(line, block, message, is_command)) {
            block = false;
            break;
        }
        if (is_quotes(line) && !more && (block || t->editor)) {
            if (block) break;
            block = true;
            continue;
        }
        bool slash = first && line->len && line->data[0] == '/';
        bool escaped = slash && line->len > 1 && line->data[1] == '/';
        if (first) *is_command = slash && !escaped;
        if (first && *is_command && opens_block(line)) {
            block = true;
            line->len = line_end(line) - 3;
        }
        more = t->editor && !block && line->len && line->data[line->len - 1] == '\\';
        if (more) line->len--;
        rvi_buf_append(message, line->data + escaped, line->len - escaped);
        if (block || more) rvi_buf_putc(message, '\n');
    } while (block || more);
    if (block && message->len) message->len--; /* the end of its last line */
    rvi_buf_puts(message, "");
    if (message->data) message->data[message->len] = 0;
    return CLI_READ_LINE;
}

/* ---- on a terminal ---- */

static bool is_blank(const rvi_buf *text)
{
    for (size_t i = 0; i < text->len; i++)
        if (!strchr(" \t\n", text->data[i])) return false;
    return true;
}

/* So that what arrow-up brings back means the same again. */
static void remember(cli_chat_state *t, const rvi_buf *message, bool is_command)
{
    rvi_buf entry = {0};
    if (!is_command && message->data[0] == '/') rvi_buf_putc(&entry, '/');
    if (rvi_buf_append(&entry, message->data, message->len))
        cli_editor_remember(t->editor, entry.data, entry.len);
    rvi_buf_deinit(&entry);
}

/* With the name by which the user asked for the model: the one in the file may be anything. */
static void greet(const cli_chat_state *t)
{
    char name[256];
    const char *slash = strrchr(t->name, '/');
    snprintf(name, sizeof name, "%s", slash && slash[1] ? slash + 1 : t->name);
    cli_hush_line(name, strlen(name));
    cli_remark(t, "Chat with %s. /help lists the commands, Ctrl-D leaves.", name);
}

static int chat_on_terminal(cli_chat_state *t)
{
    rvi_buf line = {0}, message = {0};
    bool interrupted = false; /* the one before was an interrupt too */
    int code = CLI_OK;
    greet(t);
    while (!t->quit) {
        bool is_command, open;
        cli_read r = read_message(t, &line, &message, &is_command, &open);
        cli_interrupts_forget();
        if (line.failed || message.failed) {
            cli_remark(t, "Out of memory for this message.");
            code = CLI_FAILED;
            break;
        }
        if (r == CLI_READ_END) break;
        if (r != CLI_READ_LINE) {
            if (r == CLI_READ_INTERRUPT_EMPTY && interrupted) {
                code = CLI_INTERRUPTED;
                break;
            }
            if (r == CLI_READ_INTERRUPT_EMPTY) cli_remark(t, "(Ctrl-C again, or Ctrl-D, leaves)");
            interrupted = true;
            continue;
        }
        interrupted = false;
        if (is_blank(&message)) continue;
        remember(t, &message, is_command);
        rv_error err = {0};
        if (is_command) {
            if (run_command(t, &message, &err)) cli_remark_error(t, &err);
            interrupted = cli_interrupted();
            cli_interrupts_forget();
            continue;
        }
        if (turn(t, message.data, message.len, &err)) cli_remark_error(t, &err);
        interrupted = cli_interrupted();
        cli_interrupts_forget();
    }
    rvi_buf_deinit(&line);
    rvi_buf_deinit(&message);
    return code;
}

/* ---- elsewhere ---- */

/* A line that fails is named and passed over. */
static int chat_by_lines(cli_chat_state *t)
{
    rvi_buf line = {0}, message = {0};
    rv_error err = {0};
    rv_status st = RV_OK;
    bool is_command, open = false;
    int code = CLI_OK;
    while (!t->quit && !cli_interrupted() && !ferror(stdout)) {
        size_t number = t->n_lines + 1;
        if (read_message(t, &line, &message, &is_command, &open) != CLI_READ_LINE) break;
        if (line.failed || message.failed) break;
        rv_error own = {0};
        st = is_command    ? run_command(t, &message, &own)
             : message.len ? turn(t, message.data, message.len, &own)
                           : RV_OK;
        if (st) {
            rvi_error(&err, st, "line %zu: %s", number,
                      own.text[0] ? own.text : rv_status_text(st));
            code = cli_fail(&err);
        }
    }
    st = line.failed || message.failed ? rvi_nomem(&err, "input line") : RV_OK;
    if (!st && open && !cli_interrupted())
        st = rvi_error(&err, RV_E_INVALID,
                       "the lines after \"\"\" have no end: a line of \"\"\" is missing");
    rvi_buf_deinit(&line);
    rvi_buf_deinit(&message);
    if (st) code = cli_fail(&err);
    return cli_interrupted() ? CLI_INTERRUPTED : code;
}

/* ---- beginning ---- */

static rv_status open_editor(cli_chat_state *t, rv_error *err)
{
    rvi_buf path = {0};
    const char *term = getenv("TERM");
    bool escapes = term && *term && strcmp(term, "dumb") != 0;
    t->screen = rvi_os_is_terminal(stdout) ? stdout : stderr;
    t->colour = escapes && !t->c->no_color;
    const char *dir = t->g->no_history ? NULL : cli_history_dir(t->c);
    if (dir && rvi_os_make_private_dirs(dir, NULL) == RV_OK)
        rvi_buf_printf(&path, "%s/chat_history", dir);
    rv_status st = cli_editor_new(&t->editor, t->screen, escapes, command_names(), path.data, err);
    rvi_buf_deinit(&path);
    cli_interrupts_catch(escapes ? cli_editor_last_words : "\n", true);
    return st;
}

int cli_chat_with(cli *c, const char *model, cli_generation *g)
{
    cli_chat_state t = {.c = c, .g = g, .name = model, .now = cli_now(), .screen = stderr};
    rv_error err = {0};
    bool terminal =
        rvi_os_is_terminal(stdin) && (rvi_os_is_terminal(stdout) || rvi_os_is_terminal(stderr));
    int code = cli_generation_resolve(c, g, !rvi_os_is_terminal(stdin));
    if (code) return code;
    if (!g->max_given) g->options.max_tokens = 512;
    rv_status st = cli_open(c, model, false, &t.model, &err);
    if (!st) t.info = *rv_model_get_info(t.model.m);
    if (!st && !t.info.has_tokenizer)
        st = rvi_error(&err, RV_E_TOKENIZATION, "the model has no tokenizer to chat with");
    if (!st) st = cli_generation_session(c, g, &t.model, &t.session, &err);
    if (!st && g->system) st = cli_conversation_set_system(&t.talk, g->system, &err);
    if (!st) cli_interrupts_catch("\n", false);
    if (!st && terminal) st = open_editor(&t, &err);
    if (!st) cli_chat_open_learning(&t, terminal);
    if (!st) code = terminal ? chat_on_terminal(&t) : chat_by_lines(&t);
    cli_editor_free(&t.editor);
    if (!st && !fflush(stdout)) cli_leave(code);
    rv_free(t.plan);
    cli_conversation_deinit(&t.talk);
    rv_session_free(&t.session);
    cli_generation_close(g);
    cli_learning_close(&t.learning);
    cli_close(&t.model);
    return st ? cli_fail(&err) : code;
}

int cli_chat(cli *c, int argc, char **argv)
{
    cli_generation g;
    cli_option rows[CLI_GENERATION_OPTIONS];
    const char *args[1];
    int n_args = 0;
    bool done = false;
    cli_settings preset;
    cli_generation_init(&g);
    cli_generation_rows(&g, rows);
    int code = cli_preset_read(&preset, c, rows, RVI_COUNT(rows), argc, argv);
    if (!code)
        code = cli_parse(c, rows, RVI_COUNT(rows), preset.argc, preset.argv, args,
                         preset.model ? 0 : 1, &n_args, &done);
    if (!code && !done && !n_args && !preset.model) code = cli_usage(c, CLI_MODEL_NEEDED);
    const char *model = n_args ? args[0] : preset.model;
    if (!code && !done)
        code = g.explain ? cli_explain_only(c, model, &g, cli_generation_alone(&g), false)
                         : cli_chat_with(c, model, &g);
    cli_settings_free(&preset);
    return code;
}
