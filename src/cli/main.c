/* The program: a table of commands, help, the environment. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/os.h"
#include "cli/generation.h"

const cli_command cli_commands[] = {
    {"run", "MODEL [PROMPT]", "answer a prompt, or chat without one",
     "  Standard input that is no terminal goes behind PROMPT, a blank line between them ('< "
     "/dev/null' gives none);\n"
     "  without PROMPT each of its lines is a message of a chat.\n"
     "  --raw                    continue the text as it is, no chat template\n"
     "  --messages F.json        a whole conversation: [{\"role\": ..., \"content\": ...}, ...], "
     "or {\"messages\": [...]}\n"
     "  --ids 1,2,3              token ids instead of text (@file reads them)\n"
     "  --json                   {\"text\", \"ids\", \"prompt_ids\", \"finish_reason\", "
     "\"timings\", \"seed\"}\n"
     "  --logprobs N             with --json: log probabilities of the tokens and of the N best "
     "each time (0 to 20)\n",
     cli_run, cli_generation_help},
    {"chat", "MODEL", "talk with a model; /help there lists the commands",
     "  --no-history             keep no file of what was typed (XDG_STATE_HOME/ruvllm or "
     "~/.local/state/ruvllm,\n"
     "                           with RUVLLM_STATE_DIR or --state-dir there; chat_history)\n"
     "  Standard input that is not a terminal: every line is a message, answered greedily unless "
     "options say otherwise.\n",
     cli_chat, cli_generation_help},
    {"teach", "MODEL [-q QUESTION -a ANSWER | FILE.jsonl]", "right answers, from now on",
     "  -q TEXT, -a TEXT     a question and its right answer\n"
     "  FILE.jsonl           a lesson a line ('-': standard input): {\"question\": ..., "
     "\"answer\": "
     "...}, or\n"
     "                       {\"question\": ..., \"chosen\": ..., \"rejected\": ...}: of two "
     "answers the "
     "better one\n"
     "  --instant            spoken from memory at once; the weights follow with 'learn run' or "
     "while "
     "you chat (default)\n"
     "  --background         trained now: groups of corrections become adapters\n"
     "  --deep               longer, with a validation split, and preferences too\n"
     "  --adapter NAME       what is taught is kept under this name (default)\n"
     "  --json               what changed, one JSON object a lesson\n",
     cli_teach, NULL},
    {"learn", "ACTION [-m MODEL]", "what was learned: look, train, take back, hand on",
     "  status               what was taught, what waits, the generations of adapters\n"
     "  run                  train what waits, now (--deep: longer, preferences too; --loss "
     "dpo|kto)\n"
     "  pause                no training in the background of chats, until 'learn run'\n"
     "  rollback [GEN]       make an earlier generation the current one (the one before the "
     "newest; 0: "
     "none)\n"
     "  export PATH          the newest adapter (--generation N) as a PEFT directory, or a file "
     "ending in "
     ".gguf (--f16);\n"
     "                       --force replaces what is there\n"
     "  import PATH          an adapter from elsewhere becomes a generation\n"
     "  merge A B            two generations become one: --how average|quality|ewc (average)\n"
     "  log verify           checks the chain of the feedback log\n"
     "  forget TEXT          removes what was taught with this text in its question or answer\n"
     "  -m, --model MODEL    the model that was taught (smollm2)\n"
     "  --adapter NAME       what is kept under this name (default)\n"
     "  --json               as one JSON object\n"
     "  State is kept under RUVLLM_STATE_DIR (~/.local/share/ruvllm), by model and name.\n",
     cli_learn, NULL},
    {"embed", "MODEL [TEXT|-]...", "texts to vectors",
     "  --pooling KIND           of the tokens' vectors: mean, last, first (what the model was "
     "made "
     "for)\n"
     "  --no-normalize           leave the length as it is (1)\n"
     "  --file F                 one text a line; '-' or no TEXT: of standard input\n"
     "  --json                   {\"model\", \"embeddings\": [{\"index\", \"n_tokens\", "
     "\"embedding\"}, ...]}\n",
     cli_embed, NULL},
    {"bench", "MODEL", "how fast a model runs here",
     "  -p N                 tokens of the prompt test (512); 0: leave it out\n"
     "  -n N                 tokens of the decoding test (128); 0: leave it out\n"
     "  -d N                 tokens of context before either test (0)\n"
     "  -r N                 repetitions (5), after one that does not count\n"
     "  --parallel N         sequences that decode together (1)\n"
     "  --ops                where the time goes: each op with its share, GB/s and GOP/s, and of "
     "the roof\n"
     "  --json, --csv        with the field names of llama-bench\n",
     cli_bench, NULL},
    {"eval", "KIND MODEL [FILE.json]", "how well learning works, by questions with known answers",
     "  facts MODEL FILE     corrections, then the same asked in other words, and what must not "
     "have "
     "changed\n"
     "    --mode M           instant: nothing trained; background (the default), deep: adapters; "
     "product: both\n"
     "    --recipe R7|R1     trained for a gate (R7), or fenced, for use without one (R1)\n"
     "    --gate on|off      adapters take part only where a taught subject is named (R7 on, R1 "
     "off)\n"
     "    --slots on|off     corrections are spoken at once, from memory (instant and product: "
     "on)\n"
     "    --tau strict|0.1   how much nearer another relation may be for a slot to speak (0.1)\n"
     "    --group N          facts that make an adapter (R7: 20; R1: all)\n"
     "    --one-by-one N     the first N facts each alone, and five relations at a time\n"
     "  seq MODEL FILE       groups of facts one after the other into one adapter: what is kept\n"
     "    --groups N         as many (5)\n"
     "    --rehearsal on|off   old facts among the new ones (on)\n"
     "    --ewc on|off       what matters to old facts is held (on)\n"
     "    --kl on|off        replay of the model's own texts (on)\n"
     "  pref MODEL FILE      rules of style, from pairs or scores\n"
     "    --style NAME       one rule of the file (all)\n"
     "    --from pairs|scores   the model's answer and its correction (pairs), or the best and "
     "worst of "
     "four answers (scores)\n"
     "    --loss dpo|kto     of training (dpo)\n"
     "    --loop background|instant   instant: every score changes the model at once (background)\n"
     "    --runs N           with other samples each (instant: 4, else 1)\n"
     "    --events N         scores of an instant run (200), thumbs for an answer (20), garbage "
     "(200)\n"
     "  thumbs MODEL FILE    thumbs down for answers: how unlikely they become, what else changes\n"
     "  garbage MODEL        top scores for random tokens: how much the perplexity suffers\n"
     "    --rollback on|off   the adapter is taken back when its probe says it drifted (on)\n"
     "    --contrast on|off   the model's own answers score 0 in between (off)\n"
     "  all of them\n"
     "    --set N            one set of the file (all: their mean, and the worst)\n"
     "    --limit N          the first N facts, or questions, alone\n"
     "    --seed N           of training and sampling (1)\n"
     "    --steps N          of training (the recipe's own)\n"
     "    --rank N           of adapters (8)\n"
     "    --rate R           of learning (0.002)\n"
     "    --text F           a text for the rise of perplexity (not measured without)\n"
     "    --windows N        of 512 tokens of it (64)\n"
     "    --control KIND     random: gradients replaced by noise; shuffled: wrong answers taught\n"
     "    --dump F           every question and answer, as lines of JSON\n"
     "    --work DIR         keep there what is made once for a model, for the next evaluation\n"
     "    --json             one JSON object\n"
     "  Nothing that was learned before takes part, and nothing is kept.\n",
     cli_eval, NULL},
    {"doctor", "[MODEL]", "what this machine can do, and what to run on it (some seconds)",
     "  --json               as one JSON object\n"
     "  With a model: the speed to expect of it, and the context that fits the memory.\n",
     cli_doctor, NULL},
    {"tokenize", "MODEL [TEXT|-]", "text to token ids",
     "  --bos                begin with the beginning-of-text token, where the model wants one\n"
     "  --plain              special-token text is ordinary text\n"
     "  --json               {\"ids\": [...]}\n"
     "  --jsonl              one {\"text\": ...} a line in, one {\"ids\": [...]} a line out\n",
     cli_tokenize, NULL},
    {"detokenize", "MODEL IDS", "token ids to text",
     "  --skip-special       leave special tokens out\n"
     "  --json               {\"text\": ...}\n",
     cli_detokenize, NULL},
    {"template", "MODEL|FILE.jinja CONVERSATION.json", "render a conversation by a chat template",
     "  --now DATE           the date templates see: YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SS\n"
     "  --json               {\"text\": ...}\n"
     "  A model's own template joins text parts of list contents where it takes no lists; "
     "FILE.jinja is rendered as it stands.\n",
     cli_template, NULL},
    {"perplexity", "MODEL FILE", "how well the model predicts a text",
     "  --ctx N              tokens a window (512); the second half of each is scored\n"
     "  --json               {\"ppl\": ..., ...}\n",
     cli_perplexity, NULL},
    {"tap", "MODEL --ids 1,2,3|@file -o OUT.safetensors",
     "write intermediate values of a forward pass",
     "  --tap NAME,...       hidden.I, logits, attn_norm.I, q.I, k.I, v.I, q_rope.I, k_rope.I, "
     "attn_mix.I, attn_out.I,\n"
     "                       ffn_norm.I, ffn_gate.I, ffn_up.I, ffn_act.I, ffn_out.I (hidden.* and "
     "logits), '*' for all\n"
     "  --lora PATH[:SCALE]  adapter (may be repeated)\n"
     "  --force              replace OUT.safetensors where it exists\n",
     cli_tap, NULL},
    {"info", "MODEL", "what a model is",
     "  --tensors            every tensor too\n"
     "  --json               as one JSON object\n",
     cli_info, NULL},
    {"pull", "NAME", "fetch a model of the catalogue", "", cli_pull, NULL},
    {"list", "", "the catalogue, and what is on this machine", "", cli_list, NULL},
    {0},
};

static const char global_help[] =
    "everywhere:\n"
    "  -t, --threads N      threads (one for each CPU)\n"
    "  --ctx N              tokens of prompt and answer together (4096, or what the model was made "
    "for)\n"
    "  --exact              f32 activations and f32 KV cache\n"
    "  --kv f32|f16|q8      KV cache type (f16); q8 is half as large and faster\n"
    "  --no-pack            run from the file's own layout: opens faster, computes slower\n"
    "  --isa NAME           highest instruction set to use\n"
    "  --cache-dir DIR      where models are kept (RUVLLM_CACHE_DIR, else XDG_CACHE_HOME/ruvllm, "
    "else ~/.cache/ruvllm)\n"
    "  --state-dir DIR      where what was learned is kept (RUVLLM_STATE_DIR, else "
    "XDG_DATA_HOME/ruvllm, else\n"
    "                       ~/.local/share/ruvllm), readable by you alone\n"
    "  --no-color           plain output\n"
    "  -v, --verbose        say more (RUVLLM_LOG_LEVEL: error, warn, info, debug)\n"
    "  -h, --help           this text; --version\n";

static void command_help(const cli_command *cmd)
{
    printf("ruvllm %s %s\n  %s\n%s%s\n%s%s%s", cmd->name, cmd->arguments, cmd->summary,
           cmd->details[0] ? "\n" : "", cmd->details, cmd->more ? cmd->more : "",
           cmd->more ? "\n" : "", global_help);
}

static void help(void)
{
    printf("ruvllm %s - runs language models on this machine\n\nusage: ruvllm COMMAND ...\n\n",
           rv_version());
    for (const cli_command *cmd = cli_commands; cmd->name; cmd++)
        printf("  %-11s %-38s %s\n", cmd->name, cmd->arguments, cmd->summary);
    printf("\nMODEL: a .gguf file, a model directory, or a name from 'ruvllm list'.\n\n%s\n'ruvllm "
           "COMMAND --help' says more.\n",
           global_help);
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
            fprintf(stderr, "ruvllm: cannot write to standard output: %s\n",
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

static int run_program(cli *c, int argc, char **argv)
{
    if (argc < 2) {
        help();
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("ruvllm %s\n", rv_version());
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
        rv_error err;
        (void)rvi_error(&err, RV_E_CONFIG, "unknown command '%s'; 'ruvllm --help' lists them",
                        argv[at < argc ? at : argc - 1]);
        (void)cli_fail(&err);
        return CLI_USAGE;
    }
    c->command = cmd->name;
    for (int i = at; i > 1; i--)
        argv[i] = argv[i - 1]; /* options before the command join those after it */
    int code = cmd->run(c, argc - 2, argv + 2);
    return cli_interrupted() && code != CLI_USAGE ? CLI_INTERRUPTED : code;
}

int main(int argc, char **argv)
{
    cli c = {0};
    rvi_os_hold_streams();
    read_environment(&c);
    int code = run_program(&c, argc, argv);
    cli_paths_deinit(&c);
    return close_output(code);
}
