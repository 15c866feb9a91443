/* The program: a table of commands, help, the environment. */
#include <stdlib.h>
#include <string.h>

#include "cli/generation.h"

const cli_command cli_commands[] = {
    {"run", "MODEL [PROMPT]", "answer a prompt, or chat without one",
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
     "  --no-history             keep no file of what was typed (CACHE/chat_history)\n"
     "  Standard input that is not a terminal: every line is a message, answered greedily unless "
     "options say otherwise.\n",
     cli_chat, cli_generation_help},
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
     "  --ops                where the time goes: each op with its share, GB/s and GOP/s, and of the roof\n"
     "  --json, --csv        with the field names of llama-bench\n",
     cli_bench, NULL},
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
     "  --lora PATH[:SCALE]  adapter (may be repeated)\n",
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
    "  --cache-dir DIR      where models are kept (RUVLLM_CACHE_DIR, ~/.cache/ruvllm)\n"
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

static void read_environment(cli *c)
{
    const char *cache = getenv("RUVLLM_CACHE_DIR"), *home = getenv("HOME");
    if (cache && *cache)
        snprintf(c->default_cache, sizeof c->default_cache, "%s", cache);
    else
        snprintf(c->default_cache, sizeof c->default_cache, "%s/.cache/ruvllm",
                 home && *home ? home : ".");
    c->cache_dir = c->default_cache;
    c->log_level = getenv("RUVLLM_LOG_LEVEL");
    const char *plain = getenv("NO_COLOR");
    c->no_color = plain && *plain;
}

int main(int argc, char **argv)
{
    cli c = {0};
    read_environment(&c);
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
    int at = cli_command_at(&c, argc, argv);
    const cli_command *cmd = at < argc ? find_command(argv[at]) : NULL;
    if (!cmd) {
        fprintf(stderr, "ruvllm: unknown command '%s'; 'ruvllm --help' lists them\n",
                argv[at < argc ? at : argc - 1]);
        return CLI_USAGE;
    }
    c.command = cmd->name;
    for (int i = at; i > 1; i--)
        argv[i] = argv[i - 1]; /* options before the command join those after it */
    return cmd->run(&c, argc - 2, argv + 2);
}
