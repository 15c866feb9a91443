/* The commands of ruvllm, with their help. */
#include "cli/generation.h"

const char cli_program[] = "ruvllm";
const char cli_purpose[] = "runs language models on this machine";

const cli_command cli_commands[] = {
    {"run", "MODEL [PROMPT]", "answer a prompt, or chat without one",
     "  Piped standard input is appended to PROMPT after a blank line ('< /dev/null' prevents "
     "this); without PROMPT, each line of it is a message or a command of a chat.\n"
     "  --raw                    continue the text as it is, no chat template\n"
     "  --messages F.json        a whole conversation: [{\"role\": ..., \"content\": ...}, ...], "
     "or {\"messages\": [...]}\n"
     "  --ids 1,2,3              token ids instead of text (@file reads them)\n"
     "  --json                   {\"text\", \"ids\", \"prompt_ids\", \"finish_reason\", "
     "\"timings\", \"seed\"}, with --explain-backend also \"backend\"\n"
     "  --logprobs N             with --json: log probabilities of the tokens and of the N best "
     "each time (0 to 20)\n"
     "  --schema F.json          the answer is JSON that satisfies this JSON Schema (a file, or "
     "the "
     "schema itself: '{...}'); what cannot be enforced is refused\n"
     "  --json-mode              the answer is a JSON object\n"
     "  --regex R                the answer matches this regular expression as a whole\n"
     "  --grammar F.gbnf|F.lark  the answer is a text of this grammar (or its rules: 'root ::= "
     "...')\n"
     "  --choices A,B            the answer is one of these (a JSON list where one holds a "
     "comma)\n"
     "  --tools F.json           functions the model may call, in OpenAI's form (a file, or "
     "'[...]'); calls are printed as JSON, one a line, their arguments held to the schema\n"
     "  --tool-choice C          auto, none, required, or the name of the one to call (auto)\n"
     "  --think N|off            at most N tokens of thinking, or none; what is thought is not "
     "printed\n"
     "  --retries N              do not hold the answer to --schema, --tools and the like: check "
     "it, and let the model try again up to N times, told what was wrong\n"
     "  --template F.jinja       a chat template to use instead of the model's\n",
     cli_run, cli_generation_help},
    {"chat", "MODEL", "talk with a model; /help there lists the commands",
     "  --no-history             do not save what is typed (otherwise in the file chat_history of "
     "--state-dir or RUVLLM_STATE_DIR, XDG_STATE_HOME/ruvllm or ~/.local/state/ruvllm)\n"
     "  A line is a message, or a command such as /help or /quit, also where standard input is not "
     "a terminal; messages are answered greedily there unless options say otherwise, and one that "
     "fails is named and passed over (exit status 1).\n",
     cli_chat, cli_generation_help},
    {"serve", "[[NAME=]MODEL]...",
     "answer over HTTP (OpenAI, Anthropic, Ollama), learn from feedback",
     "  --host ADDRESS       where to listen (127.0.0.1); other machines need --api-key or --keys\n"
     "  --port N             (8080); 0 takes one that is free\n"
     "  --unix PATH          listen on a unix socket instead\n"
     "  --api-key KEY        answer only requests that carry it; it may do everything\n"
     "  --keys FILE          keys with scopes, rates and learned state of their own ('ruvllm key' "
     "makes them); read again at SIGHUP\n"
     "  --tls-cert FILE, --tls-key FILE\n"
     "                       encrypt connections; PEM, read again at SIGHUP\n"
     "  --cors-origin URL    pages that may ask, with commas between them, or *; otherwise only "
     "the server's own\n"
     "  --max-body N         MiB of a request (32)\n"
     "  --max-waiting N      requests that wait (4096); one more is 429\n"
     "  --max-per-key N      the same for the keys of one name; no limit without it\n"
     "  --memory SIZE        what weights, KV pages, adapters, scratch and training may take "
     "together: 512M, 1.5G. Pages and adapters that are merely kept are given up first, then "
     "models that nobody "
     "uses; requests wait for room. A model that does not fit beside one request of --ctx tokens "
     "is "
     "refused\n"
     "  --max-memory N       MiB that models may take together; the one that was not used longest "
     "makes room for the next\n"
     "  --max-loaded N       the same as a number of models\n"
     "  --unload-after N     seconds without a request after which a model is unloaded\n"
     "  --drain N            seconds for what is under way when SIGTERM comes (30)\n"
     "  --adapters DIR       LoRA adapters that requests may name as their model, by file name; of "
     "several models in folders of their names\n"
     "  --presets DIR        files NAME.toml with a system prompt, sampling and an adapter, which "
     "requests may name as their model\n"
     "  --sessions DIR       keep conversations of requests with a member 'session' there: what "
     "was "
     "computed of them outlives the process, also one that is killed\n"
     "  --session-idle N     seconds without use after which one is removed\n"
     "  --session-age N      seconds since it began after which one is removed\n"
     "  --sessions-per-key N most of each key; a conversation more is refused with 429\n"
     "  --session-room SIZE  of all sessions of a model: 20G; what would exceed it is not saved\n"
     "  --pressure WORD      when requests need more room than there is: recompute (the youngest "
     "wait "
     "and are computed again), spill (what they had is written to --spill), cheaper (of these two "
     "the faster), reject (429 for who comes then). These change no text; two do, and answers say "
     "so: evict (the longest answer forgets what lies between its beginning and its newest "
     "tokens), "
     "quantize (it reads in 4 bits; needs --kv tiered). recompute, and cheaper with --spill\n"
     "  --spill DIR          a folder for what is written then; files have no names there\n"
     "  --spill-room SIZE    of it, for each model: 20G\n"
     "  --witness DIR|URL    a log of requests and feedback there, chained by hashes ('ruvllm "
     "witness verify' checks it); of contents it has hashes alone; URL: in a PostgreSQL database, "
     "one log of all "
     "instances\n"
     "  --witness-contents   keep contents beside it, in files that may be deleted\n"
     "  --any-model          a name that no model has means the first\n"
     "  --pull               download models of 'ruvllm list' that are not on this machine yet\n"
     "  --parallel N         answers that are computed at the same time (32)\n"
     "  --adapter NAME       use and store what is taught under this name (default)\n"
     "  --no-learning        do not learn, and do not use what was learned\n"
     "  --template F.jinja   a chat template to use instead of the model's\n"
     "  --alias NAMES        what clients call the first model, with commas between names; the "
     "first is "
     "its id\n"
     "  --llama-compatible WORDS\n"
     "                       llama-server's own paths and habits, for clients written for it; its "
     "flags as words: 'seed=42 n-predict=64 slots metrics'\n"
     "  --config F.toml      options, as name = value, and model (RUVLLM_CONFIG, or ruvllm.toml "
     "here); RUVLLM_SERVE_PORT and the like count more, the command line most\n"
     "  --check              print what counts, and end\n"
     "  docs/SERVER.md lists the paths.\n",
     cli_serve, NULL},
    {"key", "FILE NAME", "make a key for serve --keys and print it once",
     "  --scopes LIST        of infer, teach and admin (infer,teach)\n"
     "  --per-minute N       requests a minute; no limit without it\n"
     "  --learning shared|tenant|off\n"
     "                       what its users teach is for all, for the keys of this name, or "
     "they neither teach nor use what was taught (shared)\n"
     "  FILE stores only a hash, from which the key cannot be recovered.\n",
     cli_key, NULL},
    {"witness", "verify DIR|URL | replay DIR MODEL", "check the log of serve --witness",
     "  verify DIR|URL       no line was changed, removed or inserted, and no content\n"
     "  replay DIR MODEL     with contents: what was taught is what MODEL has learned, and its "
     "adapters come out of it again, bit for bit\n"
     "\n"
     "  --head HASH          verify: the log must end with, or have had, this line: catches lines "
     "that were cut off its end\n"
     "  --adapter NAME       replay: what is stored under this name (default)\n"
     "  --tenant NAME        replay: what the keys of this name taught for themselves\n",
     cli_witness, NULL},
    {"teach", "MODEL [-q QUESTION -a ANSWER | FILE.jsonl]", "teach the right answers to questions",
     "  -q TEXT, -a TEXT     a question and its right answer\n"
     "  --scope topic|exact|always\n"
     "                       where it counts: wherever the same thing is asked (topic), where this "
     "very question is asked, or in every chat: then there is no -q, and -a is an instruction that "
     "the model reads first\n"
     "  FILE.jsonl           one lesson a line ('-': standard input): {\"question\": ..., "
     "\"answer\": ...}, with a \"scope\" if it is not topic, or {\"question\": ..., \"chosen\": "
     "..., \"rejected\": ...}: the better of two answers\n"
     "  --instant            answer from memory at once, train later: with 'learn run' or while "
     "you chat (default)\n"
     "  --background         train now: groups of corrections become adapters; then ask again\n"
     "  --deep               train longer, with a validation split, and preferences too\n"
     "  --adapter NAME       store what is taught under this name (default)\n"
     "  --json               report what changed, one JSON object a lesson\n",
     cli_teach, NULL},
    {"learn", "ACTION [-m MODEL]", "show, train, undo, export or merge what was learned",
     "  status               what was taught, what is not trained yet, the generations of "
     "adapters\n"
     "  run                  train what is not trained yet, then check what the weights answer\n"
     "  pause                stop training in the background of chats and servers until 'learn "
     "run'\n"
     "  undo                 take back what was taught last, in whichever chat or server\n"
     "  rollback [GEN]       return to an earlier generation (the one before the newest; 0: "
     "none)\n"
     "  export PATH          write the newest adapter as a PEFT directory, or as a file ending in "
     ".gguf\n"
     "  import PATH          add an adapter from another source as a generation\n"
     "  merge A B            merge two generations into one\n"
     "  log verify           check the hash chain of the feedback log\n"
     "  forget TEXT          remove lessons whose question or answer contains this text, even "
     "inside a word, also those undone or corrected since\n"
     "\n"
     "  -m, --model MODEL    the model that was taught (smollm2)\n"
     "  --adapter NAME       use what is stored under this name (default)\n"
     "  --deep               run: train longer, and preferences too\n"
     "  --loss dpo|kto       run --deep: how preferences are trained (dpo)\n"
     "  --how average|quality\n"
     "                       merge: how to weight the two (average)\n"
     "  --generation N       export: this one instead of the newest\n"
     "  --f16                export: 16-bit numbers, half the size\n"
     "  --force              export: replace an existing file\n"
     "  -y, --yes            forget: do not ask before several lessons go; where nobody can be "
     "asked, they go only with it\n"
     "  --json               as one JSON object\n"
     "\n"
     "  State is stored below --state-dir, in a directory for each model and name, or in the "
     "database of --store.\n",
     cli_learn, NULL},
    {"embed", "MODEL [TEXT|-]...", "compute the vectors of texts",
     "  --pooling mean|last|first\n"
     "                           how to combine the tokens' vectors (as the model was made for)\n"
     "  --no-normalize           do not scale the vectors to length 1\n"
     "  --file F                 one text a line; '-' or no TEXT: standard input\n"
     "  --json                   {\"model\", \"embeddings\": [{\"index\", \"n_tokens\", "
     "\"embedding\"}, ...]}\n",
     cli_embed, NULL},
    {"bench", "MODEL", "measure the speed of a model",
     "  -p N                 tokens of the prompt test (512); 0 skips it\n"
     "  -n N                 tokens of the decoding test (128); 0 skips it\n"
     "  -d N                 tokens of context before either test (0)\n"
     "  -r N                 repetitions (5), after a warm-up run\n"
     "  --parallel N         sequences that decode together (1)\n"
     "  --ops                show where the time goes: each op with its share, GB/s, GOP/s, and "
     "the roofline\n"
     "  --json, --csv        with the field names of llama-bench\n"
     "  --draft MODEL|ngram  with and without guessed tokens by turns: a text of -p tokens written "
     "again with changes, phrases of it, and one that cannot be guessed; with MODEL its answer "
     "to the text\n"
     "  --service            many clients (--parallel) of one service, each a prompt of -p and an "
     "answer of -n tokens, beside the same load without it\n"
     "  --rate R             service: also requests at random times, R a second\n"
     "  --long N             service: also streams while a prompt of N tokens is read\n"
     "  --shared N           service: also a second prompt with N tokens of the first\n"
     "  --token-ms X         service: time between two tokens to aim for (50)\n",
     cli_bench, NULL},
    {"doctor", "[MODEL]", "measure this machine and suggest what to run on it (some seconds)",
     "  --json               as one JSON object\n"
     "  With a model: also its expected speed, and the context that fits into memory. A GPU is "
     "measured too, where there is one (--device cpu: it is not looked for), and how many of the "
     "model's layers it is best given.\n",
     cli_doctor, NULL},
    {"tokenize", "MODEL [TEXT|-]", "convert text to token ids",
     "  --bos                begin with the beginning-of-text token if the model uses one\n"
     "  --special            turn the text of special tokens into control tokens\n"
     "  --json               {\"ids\": [...]}\n"
     "  --jsonl              one {\"text\": ...} a line in, one {\"ids\": [...]} a line out\n",
     cli_tokenize, NULL},
    {"detokenize", "MODEL IDS", "convert token ids to text",
     "  --skip-special       leave special tokens out\n"
     "  --json               {\"text\": ...}\n",
     cli_detokenize, NULL},
    {"template", "MODEL|FILE.jinja CONVERSATION.json", "render a conversation with a chat template",
     "  --now DATE           the date templates see: YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SS\n"
     "  --json               {\"text\": ...}\n"
     "  With a model, the text parts of list contents are joined if its template takes no lists; "
     "FILE.jinja is rendered as it is.\n",
     cli_template, NULL},
    {"perplexity", "MODEL FILE", "measure how well the model predicts a text",
     "  --ctx N              tokens a window (512); the second half of each is scored\n"
     "  --json               {\"ppl\": ..., ...}\n",
     cli_perplexity, NULL},
    {"tap", "MODEL --ids 1,2,3|@file -o OUT.safetensors",
     "write intermediate values of a forward pass",
     "  --tap NAME,...       hidden.I, logits, attn_norm.I, q.I, k.I, v.I, q_rope.I, k_rope.I, "
     "attn_mix.I, attn_out.I, ffn_norm.I, ffn_gate.I, ffn_up.I, ffn_act.I, ffn_out.I (hidden.* and "
     "logits), '*' for all\n"
     "  --lora PATH[:SCALE]  adapter (may be repeated)\n"
     "  --force              replace OUT.safetensors if it exists\n",
     cli_tap, NULL},
    {"info", "MODEL", "describe a model",
     "  --tensors            list every tensor too\n"
     "  --json               as one JSON object\n",
     cli_info, NULL},
    {"grammar", "check MODEL | repair", "test texts against JSON schemas, mend JSON",
     "  repair               JSON from standard input, mended: fences, commas, quotes, comments, "
     "an end that was cut off; what was changed goes to standard error\n"
     "  --schema F.json      repair: then checks it; what is wrong is said, with exit status 1\n"
     "  check, standard input: one {\"id\": ..., \"schema\": ..., \"texts\": [...]} a line "
     "(or \"regex\", \"grammar\", \"lark\", \"choices\" instead of the schema). Answers one a "
     "line: {\"id\", \"refused\": null or the reason, \"accepted\": [...], \"compile_us\", "
     "\"mask_us\": [...]}. Before each token the mask of all tokens is computed.\n",
     cli_grammar, NULL},
    {"pull", "NAME", "download a model of the catalogue", "", cli_pull, NULL},
    {"list", "", "list the catalogue and the models on this machine", "", cli_list, NULL},
    {0},
};
