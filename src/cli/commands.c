/* The commands of ruvllm, with their help. */
#include "cli/generation.h"

const char cli_program[] = "ruvllm";
const char cli_purpose[] = "runs language models on this machine";

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
     "  run                  train what waits, now\n"
     "  pause                no training in the background of chats, until 'learn run'\n"
     "  rollback [GEN]       make an earlier generation the current one (the one before the "
     "newest; 0: none)\n"
     "  export PATH          write the newest adapter as a PEFT directory, or as a file ending in "
     ".gguf\n"
     "  import PATH          make an adapter from elsewhere a generation\n"
     "  merge A B            make two generations one\n"
     "  log verify           check the chain of the feedback log\n"
     "  forget TEXT          remove what was taught with this text in its question or answer\n"
     "\n"
     "  -m, --model MODEL    the model that was taught (smollm2)\n"
     "  --adapter NAME       what is kept under this name (default)\n"
     "  --deep               run: longer, and preferences too\n"
     "  --loss dpo|kto       run --deep: how preferences are trained (dpo)\n"
     "  --how average|quality|ewc\n"
     "                       merge: how the two are weighed (average)\n"
     "  --generation N       export: this one instead of the newest\n"
     "  --f16                export: 16-bit numbers, half the size\n"
     "  --force              export: replace what is there\n"
     "  --json               as one JSON object\n"
     "\n"
     "  State is kept under --state-dir, in a folder for each model and name.\n",
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
    {"doctor", "[MODEL]", "what this machine can do, and what to run on it (some seconds)",
     "  --json               as one JSON object\n"
     "  With a model: the speed to expect of it, and the context that fits the memory.\n",
     cli_doctor, NULL},
    {"tokenize", "MODEL [TEXT|-]", "text to token ids",
     "  --bos                begin with the beginning-of-text token, where the model wants one\n"
     "  --special            </s> and the like become control tokens; without it they are text\n"
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
