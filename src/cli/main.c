/* What every program with commands does (ruvllm, and bench/eval): finds the command in its table,
 * prints help, reads the environment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/generation.h"

static const char global_help[] =
    "everywhere:\n"
    "  -t, --threads N      threads (one for each CPU)\n"
    "  --ctx N              tokens of prompt and answer together (4096, or what the model was made "
    "for)\n"
    "  --exact              f32 activations and f32 KV cache\n"
    "  --kv f32|f16|q8|warm|tiered\n"
    "                       KV cache type (f16); q8 is half as large and faster; warm is q8 "
    "behind the newest page; tiered is warm, and 4 bits beyond 1,024 tokens\n"
    "  --no-pack            run from the file's own layout: opens faster, computes slower\n"
    "  --isa ref|avx2|avxvnni|avx512|amx|neon|dotprod\n"
    "                       highest instruction set to use\n"
    "  --device auto|cpu|cuda[:N]\n"
    "                       what computes (cpu); auto is a GPU that can be used, or else the CPU\n"
    "  --gpu-layers N       layers that the GPU computes, the last ones; the CPU computes the "
    "others (all, or of those that fit as many as are fastest)\n"
    "  --cache-dir DIR      where models are kept (RUVLLM_CACHE_DIR, else XDG_CACHE_HOME/ruvllm, "
    "else ~/.cache/ruvllm)\n"
    "  --state-dir DIR      where what was learned is kept, readable by you alone "
    "(RUVLLM_STATE_DIR, else XDG_DATA_HOME/ruvllm, else ~/.local/share/ruvllm)\n"
    "  --store URL          keep what is learned in a PostgreSQL database instead, postgres://..., "
    "which others may use at the same time (RUVLLM_STORE)\n"
    "  --no-color           plain output\n"
    "  -v, --verbose        say more (RUVLLM_LOG_LEVEL: error, warn, info, debug)\n"
    "  -h, --help           this text; --version\n";

/* Where the description of an option begins in its line; a line of text goes on where it began. */
static size_t description_at(const char *line, size_t len)
{
    size_t at = 0;
    while (at < len && line[at] == ' ') at++;
    for (size_t i = at; i + 2 < len; i++)
        if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ') return i + 2;
    return at;
}

/* How many bytes of a line fit into `room` columns, if it is broken between words. */
static size_t fitting(const char *line, size_t len, size_t room)
{
    size_t begin = strspn(line, " "), n = room;
    if (len <= room) return len;
    while (n > begin && line[n] != ' ') n--;
    if (n <= begin) n = begin + strcspn(line + begin, " \n"); /* a word wider than that */
    while (n > begin && line[n - 1] == ' ') n--;
    return n;
}

/* Prints lines, those that are too long broken and indented as their descriptions are. */
static void print_help(const char *text)
{
    enum { WIDTH = 80 };
    while (*text) {
        size_t len = strcspn(text, "\n"), indent = description_at(text, len), at = 0;
        const char *next = text + len + (text[len] == '\n');
        do {
            size_t n = fitting(text, len, WIDTH - at);
            printf("%*s%.*s\n", (int)at, "", (int)n, text);
            for (text += n, len -= n; len && *text == ' '; text++) len--;
            at = indent;
        } while (len);
        text = next;
    }
}

static void command_help(const cli_command *cmd)
{
    printf("%s %s%s%s\n  %s\n%s", cli_program, cmd->name, *cmd->arguments ? " " : "",
           cmd->arguments, cmd->summary, cmd->details[0] ? "\n" : "");
    print_help(cmd->details);
    putchar('\n');
    if (cmd->more) {
        print_help(cmd->more);
        putchar('\n');
    }
    print_help(global_help);
}

static void help(void)
{
    printf("%s %s - %s\n\nusage: %s COMMAND ...\n\n", cli_program, rv_version(), cli_purpose,
           cli_program);
    for (const cli_command *cmd = cli_commands; cmd->name; cmd++)
        printf("  %-11s %s\n", cmd->name, cmd->summary);
    printf("\nMODEL: a .gguf file, a model directory, or a name from 'ruvllm list'.\n\n");
    print_help(global_help);
    printf("\n'%s COMMAND --help' says more.\n", cli_program);
}

static const cli_command *find_command(const char *name)
{
    for (const cli_command *cmd = cli_commands; cmd->name; cmd++)
        if (!strcmp(cmd->name, name)) return cmd;
    return NULL;
}

int cli_parse(cli *c, const cli_option *options, size_t n_options, int argc, char **argv,
              const char **args, int max, int *n_args, bool *done)
{
    *done = false;
    int st = cli_parse_options(c, options, n_options, argc, argv, args, max, n_args);
    if (st == CLI_OK && c->help) {
        command_help(find_command(c->command));
        *done = true;
    }
    return st;
}

/* What was printed may still be in a buffer: the disk may turn out to be full only now. */
static int close_output(int code)
{
    bool lost = ferror(stdout) != 0;
    if (fclose(stdout) || lost) {
        if (code == CLI_OK)
            fprintf(stderr, "%s: cannot write to standard output: %s\n", cli_program,
                    errno ? strerror(errno) : "an earlier write failed");
        code = code ? code : CLI_FAILED;
    }
    return code;
}

static void read_environment(cli *c)
{
    cli_paths_init(c);
    c->log_level = getenv("RUVLLM_LOG_LEVEL");
    const char *plain = getenv("NO_COLOR");
    c->no_color = plain && *plain;
}

static void unknown_command(const char *name)
{
    const char *names[64];
    size_t n = 0;
    rv_error err;
    for (const cli_command *cmd = cli_commands; cmd->name && n < RVI_COUNT(names) - 1; cmd++)
        names[n++] = cmd->name;
    names[n] = NULL;
    const char *near = cli_nearest(name, names);
    (void)rvi_error(&err, RV_E_CONFIG, "unknown command '%s'%s%s%s; '%s --help' lists them", name,
                    near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "",
                    cli_program);
    (void)cli_fail(&err);
}

static int run_program(cli *c, int argc, char **argv)
{
    if (argc < 2) {
        help();
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") || !strcmp(argv[1], "version")) {
        printf("%s %s\n", cli_program, rv_version());
        return CLI_OK;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        const cli_command *cmd = argc > 2 ? find_command(argv[2]) : NULL;
        if (cmd)
            command_help(cmd);
        else
            help();
        return CLI_OK;
    }
    int at = cli_command_at(c, argc, argv);
    const cli_command *cmd = at < argc ? find_command(argv[at]) : NULL;
    if (!cmd) {
        unknown_command(argv[at < argc ? at : argc - 1]);
        return CLI_USAGE;
    }
    c->command = cmd->name;
    if (c->store && !cli_is_database(c->store))
        return cli_usage(c, "RUVLLM_STORE " CLI_DATABASE_NEEDED);
    for (int i = at; i > 1; i--)
        argv[i] = argv[i - 1]; /* options before the command join those after it */
    int code = cmd->run(c, argc - 2, argv + 2);
    return cli_interrupted() && code != CLI_USAGE ? CLI_INTERRUPTED : code;
}

static void cross_out(char *from, const char *to)
{
    memset(from, 'x', (size_t)(to - from));
}

/* --api-key KEY or --api-key=KEY; false: there is no memory for a copy, or no key. */
static bool hide_key(int argc, char **argv, int i, rvi_arena *copies)
{
    static const char option[] = "--api-key";
    size_t n = sizeof option - 1;
    bool is = !strncmp(argv[i], option, n), joined = is && argv[i][n] == '=';
    int at = joined ? i : i + 1;
    if (!joined && (!is || argv[i][n] || at == argc)) return false;
    char *given = argv[at], *copy = rvi_arena_strndup(copies, given, strlen(given));
    if (!copy) return false;
    argv[at] = copy;
    cross_out(given + (joined ? n + 1 : 0), given + strlen(given));
    return true;
}

/* Everybody on a machine may read the arguments of a process: a key, or a password in the address
 * of a database, does not stay there. */
static void hide_passwords(int argc, char **argv, rvi_arena *copies)
{
    for (int i = 1; i < argc; i++) {
        if (hide_key(argc, argv, i, copies)) continue;
        char *scheme = strstr(argv[i], "postgres"), *at = scheme ? strstr(scheme, "://") : NULL;
        char *copy = at ? rvi_arena_strndup(copies, argv[i], strlen(argv[i])) : NULL;
        if (!copy) continue;
        char *host = strrchr(at, '@'), *colon = strchr(at + 3, ':'),
             *word = strstr(at, "password=");
        argv[i] = copy;
        if (host && colon && colon < host) cross_out(colon + 1, host);
        if (word) cross_out(strchr(word, '=') + 1, word + strcspn(word, "&"));
    }
}

int main(int argc, char **argv)
{
    cli c = {0};
    rvi_arena copies = {0};
    rvi_os_hold_streams();
    read_environment(&c);
    hide_passwords(argc, argv, &copies);
    int code = run_program(&c, argc, argv);
    cli_paths_deinit(&c);
    rvi_arena_deinit(&copies);
    return close_output(code);
}
