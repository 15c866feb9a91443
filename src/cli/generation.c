/* The options that shape an answer, and making one. */
#include "cli/generation.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/number.h"
#include "base/os.h"
#include "cli/screen.h"

/* ---- options ---- */

const char cli_generation_help[] =
    "the answer:\n"
    "  -s, --system TEXT        system message\n"
    "  --preset F.toml          options of an answer and the model, as name = value; what is given "
    "here counts more\n"
    "  -n, --max-tokens N       most new tokens (256; in a chat 512; a lesson is\n"
    "                           spoken to its end)\n"
    "  --min-tokens N           no end before so many (0)\n"
    "  --stop TEXT              ends the answer (may be repeated)\n"
    "  --ignore-eos             go on after the end token\n"
    "  --seed N                 the same seed gives the same text (random)\n"
    "  --lora PATH[:SCALE]      adapter, a PEFT directory or GGUF file (may be repeated)\n"
    "  --no-learn               the model alone: nothing that was taught takes part (also with "
    "--lora)\n"
    "  --adapter NAME           what was taught under this name (default)\n"
    "  --draft MODEL|ngram|off  check several guessed tokens at once: the same text, sooner. By "
    "repetition (ngram), or also by a smaller model of the same vocabulary\n"
    "  --memory SIZE            what weights, KV cache, adapters and scratch may take together: "
    "512M, 1.5G. A context that --ctx does not name gets shorter, down to 256 tokens; what does "
    "not "
    "fit then is refused\n"
    "  --explain-backend        say what computes and why: device, instructions, weights, KV "
    "cache, "
    "context and the rest. Before the answer, on standard error; without a prompt, instead of one\n"
    "  --special                <|im_end|> and the like in messages become control tokens; without "
    "it they are text\n"
    "\n"
    "choosing tokens:\n"
    "  --greedy                 the most likely each time; everything below off unless given\n"
    "  --temp T                 temperature (0.7; 0: greedy)\n"
    "  --top-k K                the K most likely (off)\n"
    "  --top-p P                the most likely that make up P (0.9)\n"
    "  --min-p P                those at least P times as likely as the best (off)\n"
    "  --typical-p P            the most typical that make up P (off)\n"
    "  --top-n-sigma N          those within N standard deviations of the best logit (off)\n"
    "  --xtc-probability P      leave out all likely ones but the last, P of the time (0) ...\n"
    "  --xtc-threshold P        ... where likely is at least P (0.1)\n"
    "  --mirostat-tau T         aim at the surprise T (off) ...\n"
    "  --mirostat-eta R         ... at the learning rate R (0.1)\n"
    "  --repeat-penalty R       against tokens of the last ... (1.1)\n"
    "  --repeat-window N        ... N tokens (64)\n"
    "  --frequency-penalty F    against tokens of the answer, by their number (0)\n"
    "  --presence-penalty P     against tokens of the answer, once (0)\n"
    "  --dry-multiplier M       against going on with a repeated sequence (0: off) ...\n"
    "  --dry-base B             ... growing by B a token (1.75)\n"
    "  --dry-allowed-length N   ... beyond N tokens (2)\n"
    "  --dry-window N           ... looking back N tokens (0: all)\n"
    "  --dry-breaker TEXT       ... sequences end at TEXT (may be repeated; newline : \" *)\n"
    "  --logit-bias ID=VALUE    added to a token's logit; -inf: never, inf: always (repeated)\n"
    "  --samplers LIST          stages in this order, those not named off (penalties, dry, "
    "top_n_sigma, temperature, top_k, typical_p, top_p, min_p, xtc, mirostat)\n";

#define ROW(option, kind, field)                                                                   \
    {                                                                                              \
        option, kind, offsetof(rv_sampling, field), sizeof(((rv_sampling *)0)->field)              \
    }
static const struct {
    const char *name;
    cli_kind kind;
    size_t offset, size;
} sampling_rows[] = {
    ROW("temp", CLI_FLOAT, temperature),
    ROW("top-p", CLI_FLOAT, top_p),
    ROW("top-k", CLI_INT, top_k),
    ROW("min-p", CLI_FLOAT, min_p),
    ROW("typical-p", CLI_FLOAT, typical_p),
    ROW("top-n-sigma", CLI_FLOAT, top_n_sigma),
    ROW("xtc-probability", CLI_FLOAT, xtc_probability),
    ROW("xtc-threshold", CLI_FLOAT, xtc_threshold),
    ROW("mirostat-tau", CLI_FLOAT, mirostat_tau),
    ROW("mirostat-eta", CLI_FLOAT, mirostat_eta),
    ROW("repeat-penalty", CLI_FLOAT, repetition_penalty),
    ROW("repeat-window", CLI_INT, repetition_window),
    ROW("frequency-penalty", CLI_FLOAT, frequency_penalty),
    ROW("presence-penalty", CLI_FLOAT, presence_penalty),
    ROW("dry-multiplier", CLI_FLOAT, dry_multiplier),
    ROW("dry-base", CLI_FLOAT, dry_base),
    ROW("dry-allowed-length", CLI_INT, dry_allowed_length),
    ROW("dry-window", CLI_INT, dry_window),
    ROW("samplers", CLI_TEXT, order),
    ROW("seed", CLI_UINT64, seed),
};
enum { TEMPERATURE = 0, REPEAT_WINDOW = 11, SEED = CLI_SAMPLING_OPTIONS - 1 };
#define TEMPERATURE_DEFAULT 0.7f
#define TOP_P               0.9f
#define REPEAT_PENALTY      1.1f
#define MAX_TOKENS          256
_Static_assert(RVI_COUNT(sampling_rows) == CLI_SAMPLING_OPTIONS, "one row each");

void cli_generation_init(cli_generation *g)
{
    *g = (cli_generation){.logprobs = -1};
}

void cli_generation_rows(cli_generation *g, cli_option *rows)
{
    const cli_option others[] = {
        {"system", 's', CLI_TEXT, &g->system, NULL},
        {"preset", 0, CLI_TEXT, &g->preset, NULL},
        {"max-tokens", 'n', CLI_INT, &g->max_tokens, &g->max_given},
        {"min-tokens", 0, CLI_INT, &g->min_tokens, NULL},
        {"greedy", 0, CLI_FLAG, &g->greedy, NULL},
        {"stop", 0, CLI_TEXTS, &g->stop, NULL},
        {"ignore-eos", 0, CLI_FLAG, &g->ignore_eos, NULL},
        {"lora", 0, CLI_TEXTS, &g->lora, NULL},
        {"dry-breaker", 0, CLI_TEXTS, &g->breakers, NULL},
        {"logit-bias", 0, CLI_TEXTS, &g->biases, NULL},
        {"no-history", 0, CLI_FLAG, &g->no_history, NULL},
        {"no-learn", 0, CLI_FLAG, &g->no_learn, NULL},
        {"adapter", 0, CLI_TEXT, &g->learned, NULL},
        {"special", 0, CLI_FLAG, &g->special, NULL},
        {"draft", 0, CLI_TEXT, &g->draft, NULL},
        {"memory", 0, CLI_TEXT, &g->memory, NULL},
        {"explain-backend", 0, CLI_FLAG, &g->explain, NULL},
    };
    _Static_assert(RVI_COUNT(others) + CLI_SAMPLING_OPTIONS == CLI_GENERATION_OPTIONS,
                   "one row each");
    for (size_t i = 0; i < CLI_SAMPLING_OPTIONS; i++)
        *rows++ = (cli_option){sampling_rows[i].name, 0, sampling_rows[i].kind,
                               (char *)&g->given + sampling_rows[i].offset, &g->are_given[i]};
    memcpy(rows, others, sizeof others);
}

/* "ID=VALUE" */
static bool read_bias(const char *text, rv_logit_bias *out)
{
    char *end;
    errno = 0;
    long id = strtol(text, &end, 10);
    if (end == text || *end != '=' || errno || id < 0 || id > INT32_MAX) return false;
    const char *value = end + 1;
    const char *after;
    float bias = (float)rvi_number_parse(value, &after);
    *out = (rv_logit_bias){(int32_t)id, bias};
    return after != value && !*after && (isinf(bias) || fabsf(bias) <= 1e9f);
}

static int check_texts(const cli *c, const char *name, const cli_texts *t, size_t most)
{
    for (size_t i = 0; i < t->n; i++) {
        size_t len = strlen(t->items[i]);
        if (len > most)
            return cli_usage(c, "--%s must be at most %zu bytes (got %zu)", name, most, len);
    }
    return CLI_OK;
}

static int check_stages(const cli *c, const char *order)
{
    static const char *const stages[] = {"penalties", "dry",       "top_n_sigma", "temperature",
                                         "top_k",     "typical_p", "top_p",       "min_p",
                                         "xtc",       "mirostat"};
    bool seen[RVI_COUNT(stages)] = {0};
    for (const char *at = order; *order;) {
        size_t len = strcspn(at, ","), i = 0;
        while (i < RVI_COUNT(stages) &&
               (strlen(stages[i]) != len || memcmp(stages[i], at, len) != 0))
            i++;
        if (i == RVI_COUNT(stages))
            return cli_usage(c, "--samplers: there is no stage '%.*s'", (int)len, at);
        if (seen[i]) return cli_usage(c, "--samplers: '%s' is named twice", stages[i]);
        seen[i] = true;
        if (!at[len]) break;
        at += len + 1;
    }
    return CLI_OK;
}

int cli_generation_resolve(const cli *c, cli_generation *g, bool greedy)
{
    rv_sampling *s = &g->sampling;
    rv_generate_options *o = &g->options;
    int code = check_texts(c, "stop", &g->stop, 4096);
    if (!code) code = check_texts(c, "dry-breaker", &g->breakers, 256);
    if (!code && g->given.order) code = check_stages(c, g->given.order);
    if (!code && g->learned) code = cli_check_name(c, g->learned);
    if (code) return code;
    *s = (rv_sampling){.size = sizeof *s, .greedy = greedy || g->greedy};
    for (size_t i = 0; i < CLI_SAMPLING_OPTIONS; i++)
        if (g->are_given[i] && !(i == TEMPERATURE && g->greedy))
            memcpy((char *)s + sampling_rows[i].offset, (char *)&g->given + sampling_rows[i].offset,
                   sampling_rows[i].size);
    bool cool = g->are_given[TEMPERATURE] && s->temperature <= 0;
    if (s->greedy && g->are_given[TEMPERATURE] && !g->greedy && !cool) {
        s->greedy = 0; /* drawn after all, with everything else still off */
        if (s->top_p <= 0) s->top_p = 1;
        if (s->repetition_penalty <= 0) s->repetition_penalty = 1;
    } else if (cool && !s->greedy) {
        s->greedy = 1;
        if (s->top_p <= 0) s->top_p = TOP_P;
        if (s->repetition_penalty <= 0) s->repetition_penalty = REPEAT_PENALTY;
    }
    if (g->are_given[REPEAT_WINDOW] && !s->repetition_window) s->repetition_penalty = 1;
    g->seed_given = g->are_given[SEED];
    if (!g->seed_given) s->seed = rvi_os_random();
    if (g->breakers.n) {
        s->dry_breakers = g->breakers.items;
        s->n_dry_breakers = g->breakers.n;
    }
    for (size_t i = 0; i < g->biases.n; i++)
        if (!read_bias(g->biases.items[i], &g->bias[i]))
            return cli_usage(c,
                             "--logit-bias must be ID=VALUE, VALUE at most 1e9 or inf (got '%s')",
                             g->biases.items[i]);
    s->logit_bias = g->bias;
    s->n_logit_bias = g->biases.n;

    *o = (rv_generate_options){.size = sizeof *o};
    o->sampling = s;
    o->max_tokens = !g->max_given ? MAX_TOKENS : g->max_tokens ? g->max_tokens : RV_NO_TOKENS;
    o->min_tokens = g->min_tokens;
    o->stop = g->stop.items;
    o->n_stop = g->stop.n;
    o->ignore_eos = g->ignore_eos;
    o->logprobs = g->logprobs >= 0;
    o->top_logprobs = RVI_MAX(g->logprobs, 0);
    if (g->draft && !*g->draft)
        return cli_usage(c, "--draft must be a model, ngram or off (got '')");
    if (g->draft && !strcmp(g->draft, "off")) o->draft = RV_DRAFT_OFF;
    if (g->draft && !strcmp(g->draft, "ngram")) o->draft = RV_DRAFT_NGRAM;
    return CLI_OK;
}

const char *cli_generation_alone(const cli_generation *g)
{
    return g->no_learn ? "--no-learn" : g->lora.n ? "--lora is there instead" : NULL;
}

/* In rv_sampling 0 is the default, and greedy a field of its own. Greedy turns the defaults of the
 * other stages off; those that the answers so far had stay. */
void cli_generation_set_temperature(cli_generation *g, float temperature)
{
    rv_sampling *s = &g->sampling;
    if (s->top_p <= 0) s->top_p = s->greedy ? 1 : TOP_P;
    if (s->repetition_penalty <= 0) s->repetition_penalty = s->greedy ? 1 : REPEAT_PENALTY;
    s->greedy = temperature <= 0;
    s->temperature = temperature;
}

float cli_generation_temperature(const cli_generation *g)
{
    if (g->sampling.greedy) return 0;
    return g->sampling.temperature > 0 ? g->sampling.temperature : TEMPERATURE_DEFAULT;
}

static rv_status open_draft(const cli *c, cli_generation *g, const cli_model *m, int n_context,
                            rv_error *err)
{
    if (!g->draft || !strcmp(g->draft, "off") || !strcmp(g->draft, "ngram")) return RV_OK;
    rv_session_options o = {.size = sizeof o, .n_context = n_context};
    rv_status st = cli_open_beside(c, g->draft, m->rt, &g->draft_model, err);
    return st ? st : rv_session_new(&g->options.draft_session, g->draft_model, &o, err);
}

void cli_generation_close(cli_generation *g)
{
    rv_session_free(&g->options.draft_session);
    rv_model_close(&g->draft_model);
}

/* What the runtime counts, all of it. */
static rv_status count_bytes(const rv_runtime *rt, uint64_t *bytes, rv_error *err)
{
    rv_memory m = {.size = sizeof m};
    rv_status st = rv_runtime_memory(rt, &m, err);
    *bytes = m.weights + m.kv + m.scratch + m.adapters;
    return st;
}

/* A context that nobody asked for is halved until everything fits into --memory. */
static rv_status open_session(cli_generation *g, const cli_model *m, rv_session_options *o,
                              rv_session **out, rv_error *err)
{
    enum { LEAST = 256 };
    uint64_t most = UINT64_MAX, bytes = 0;
    bool asked = o->n_context > 0;
    if (g->memory) (void)cli_read_size(g->memory, &most); /* which was checked */
    for (;;) {
        rv_status st = rv_session_new(out, m->m, o, err);
        if (!st) st = count_bytes(m->rt, &bytes, err);
        if (st) return st;
        int n = rv_session_context(*out);
        if (bytes <= most && g->shortened[0])
            cli_warn("the context has %d tokens: %s", n, g->shortened);
        if (bytes <= most) return RV_OK;
        rv_session_free(out);
        if (asked || n <= LEAST)
            return rvi_error(err, RV_E_NOMEM,
                             "the model with a context of %d tokens takes %.1f MB, and --memory "
                             "allows %s",
                             n, (double)bytes / 1e6, g->memory);
        o->n_context = n / 2;
        snprintf(g->shortened, sizeof g->shortened, "--memory %s has no room for more", g->memory);
    }
}

rv_status cli_generation_session(const cli *c, cli_generation *g, const cli_model *m,
                                 rv_session **out, rv_error *err)
{
    rv_session_options o;
    rv_adapter_set *adapters = NULL;
    *out = NULL;
    o = (rv_session_options){.size = sizeof o};
    o.n_context = c->context;
    rv_status st = cli_kv_type(c, &o.kv_type, err);
    if (!st) st = cli_load_adapters(&g->lora, m->m, &adapters, err);
    o.adapters = adapters;
    if (!st) st = open_session(g, m, &o, out, err);
    if (!st) st = open_draft(c, g, m, rv_session_context(*out), err);
    rv_adapter_set_free(&adapters);
    return st;
}

/* ---- interrupts ---- */

enum { MOMENT = 30 /* milliseconds */ };

static atomic_int interrupts;
static atomic_bool reading; /* a line is being read; the line editor checks the interrupts */
static atomic_bool leaving; /* an interrupt leaves, after a moment */
static rv_session *_Atomic answering; /* what an interrupt stops; NULL: nothing is being made */
static const char *_Atomic last_words = "";

/* Not everything that takes time can be cancelled (a template, a tokenizer, a step of training), so
 * a second interrupt ends the program at once. */
static void on_signal(int signal)
{
    rv_session *s = atomic_load(&answering);
    bool again = atomic_fetch_add(&interrupts, 1) > 0;
    if (signal != SIGINT || (again && !atomic_load(&reading)))
        rvi_interrupt_leave(128 + signal, atomic_load(&last_words));
    if (s) rv_session_cancel(s);
    if (atomic_load(&leaving))
        rvi_interrupt_leave_within(MOMENT, CLI_INTERRUPTED, atomic_load(&last_words));
}

void cli_interrupts_catch(const char *words, bool also_end)
{
    atomic_store(&last_words, words);
    rvi_interrupt_catch(on_signal, also_end);
}

void cli_interrupts_leave(void)
{
    atomic_store(&leaving, true);
}

void cli_leave(int status)
{
    rvi_interrupt_leave(status, "");
}

bool cli_interrupted(void)
{
    return atomic_load(&interrupts) > 0;
}

void cli_interrupts_forget(void)
{
    atomic_store(&interrupts, 0);
}

void cli_interrupts_reading(bool on)
{
    atomic_store(&reading, on);
}

/* ---- answering ---- */

typedef struct output {
    bool print;
    cli_screen screen;
    rv_tools_reader *reader; /* NULL: the text is printed as it comes */
    bool begun;              /* something was printed on this line */
    bool failed;             /* a write, or reading */
} output;

static bool put(output *o, const char *text, size_t len)
{
    if (!o->print || !len) return true;
    o->begun = text[len - 1] != '\n';
    o->failed = o->failed || !cli_screen_put(&o->screen, text, len) || fflush(stdout);
    return !o->failed;
}

/* Text as it comes; a call is an object of its own line. */
static int on_said(void *ctx, const rv_said *said)
{
    output *o = ctx;
    rvi_buf out = {0};
    switch (said->kind) {
    case RV_SAID_TEXT: rvi_buf_append(&out, said->text, said->text_len); break;
    case RV_SAID_THOUGHT: break;
    case RV_SAID_CALL:
        rvi_buf_printf(&out,
                       "%s{\"id\":\"%s\",\"name\":\"%s\",\"arguments\":", o->begun ? "\n" : "",
                       said->id, said->name);
        break;
    case RV_SAID_ARGUMENTS: /* on one line: line breaks stand between tokens only */
        for (size_t i = 0; i < said->text_len; i++)
            rvi_buf_putc(&out, strchr("\n\r", said->text[i]) ? ' ' : said->text[i]);
        break;
    case RV_SAID_CALL_END: rvi_buf_puts(&out, "}\n"); break;
    }
    o->failed = o->failed || out.failed;
    bool ok = put(o, out.data, out.len);
    rvi_buf_deinit(&out);
    return !ok;
}

static bool take_text(output *o, const rv_event *event)
{
    if (!o->reader) return put(o, event->text, event->text_len);
    return !rv_tools_read(o->reader, event->text, event->text_len, NULL);
}

static int on_event(void *ctx, const rv_event *event)
{
    output *o = ctx;
    if (event->kind == RV_EVENT_PROMPT)
        cli_screen_prompt(&o->screen, event->n_done, event->n_prompt);
    if (event->kind == RV_EVENT_TOKEN && !take_text(o, event)) return 1;
    return event->kind != RV_EVENT_DONE && cli_interrupted();
}

rv_status cli_answer(cli_generation *g, rv_session *s, const int32_t *ids, size_t n, bool print,
                     rv_answer **out, rv_error *err)
{
    output o = {.print = print};
    *out = NULL;
    if (cli_interrupted()) return rvi_error(err, RV_E_CANCELLED, "interrupted");
    rv_status st = g->tools ? rv_tools_reader_new(&o.reader, g->tools, on_said, &o, err) : RV_OK;
    if (st) return st;
    cli_screen_init(&o.screen, stdout);
    g->options.on_event = on_event;
    g->options.ctx = &o;
    if (o.screen.wraps) rvi_interrupt_hide_keys(1);
    atomic_store(&answering, s);
    st = rv_session_generate(s, ids, n, &g->options, out, err);
    atomic_store(&answering, NULL);
    if (!st && o.reader) st = rv_tools_read_end(o.reader, err);
    rv_tools_reader_free(&o.reader);
    (void)cli_screen_end(&o.screen); /* a write that failed is found when the stream is closed */
    if (o.screen.wraps) rvi_interrupt_hide_keys(0);
    g->options.ctx = NULL;
    return st;
}

int cli_generation_most(const cli_generation *g, const rv_model *m, const rv_learn_plan *plan)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (g->max_given || !plan || !plan->slot ||
        rv_tokenize(m, plan->answer, strlen(plan->answer), 0, &ids, &n, NULL))
        return g->options.max_tokens;
    rv_free(ids);
    return (int)RVI_MAX(n + 1, (size_t)g->options.max_tokens); /* and its end */
}

double cli_rate(size_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}
