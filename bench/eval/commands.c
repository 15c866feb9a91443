/* The evaluations, with their help. */
#include "eval/eval.h"

const char cli_program[] = "eval";
const char cli_purpose[] = "measures how well learning works, by questions with known answers";

static const char common_help[] =
    "every evaluation:\n"
    "  --set N              one set of the file (all: their mean, and the worst)\n"
    "  --limit N            only the first N facts or questions\n"
    "  --seed N             of training and sampling (1)\n"
    "  --steps N            of training (the recipe's own)\n"
    "  --rank N             of adapters (8)\n"
    "  --sources N          of texts to train on: 1 forms of the question + 2 the model's own "
    "wordings + 4 parts of it (7)\n"
    "  --rate R             learning rate (0.002)\n"
    "  --text F             a text for the rise of perplexity (not measured without)\n"
    "  --windows N          of 512 tokens of it (64)\n"
    "  --control KIND       random: gradients replaced by noise; shuffled: wrong answers taught\n"
    "  --dump F             every question and answer, as lines of JSON\n"
    "  --embedder DIR       recognises by meaning (all-MiniLM-L6-v2, where it is in the cache)\n"
    "  --no-embedder        recognises by spelling alone\n"
    "  --work DIR           keep there what is made once for a model, for the next evaluation\n"
    "  --json               one JSON object\n"
    "  Nothing that was learned before takes part, and nothing is kept.\n";

const cli_command cli_commands[] = {
    {"facts", "MODEL FILE.json",
     "corrections, then the same asked in other words, and what must not have changed",
     "  --mode M             instant: nothing trained; background (the default), deep: adapters; "
     "product: both\n"
     "  --recipe R7|R1       trained for a gate (R7), or fenced, for use without one (R1)\n"
     "  --gate on|off        adapters take part only where a lesson is asked for (R7 on, R1 "
     "off)\n"
     "  --slots on|off       corrections are spoken at once, from memory (instant and product: "
     "on)\n"
     "  --group N            facts that make an adapter (R7: as ruvllm does it; R1: all)\n"
     "  --same-fence on|off  R1 is held to the model's answers about the same subjects too (on)\n"
     "  --one-by-one N       the first N facts each alone, and five relations at a time\n"
     "  --ask on|off         off: only teaches and trains, to see how long that takes (on)\n",
     eval_facts, common_help},
    {"seq", "MODEL FILE.json", "groups of facts one after the other into one adapter: what is kept",
     "  --groups N           as many (5)\n"
     "  --rehearsal on|off   old facts among the new ones (on)\n"
     "  --ewc on|off         what matters to old facts is held (on)\n"
     "  --kl on|off          replay of the model's own texts (on)\n",
     eval_seq, common_help},
    {"pref", "MODEL FILE.json", "rules of style, from pairs or scores",
     "  --style NAME         one rule of the file (all)\n"
     "  --from pairs|scores  the model's answer and its correction (pairs), or the best and worst "
     "of four answers (scores)\n"
     "  --loss dpo|kto       of training (dpo)\n"
     "  --loop background|instant   instant: every score changes the model at once (background)\n"
     "  --runs N             with other samples each (instant: 4, else 1)\n"
     "  --events N           scores of an instant run (200)\n",
     eval_pref, common_help},
    {"thumbs", "MODEL FILE.json",
     "thumbs down for answers: whether they come again, what else changes",
     "  --tries N            times a question is asked again (20)\n", eval_thumbs, common_help},
    {"garbage", "MODEL", "top scores for random tokens: how much the perplexity suffers",
     "  --events N           of them (200)\n"
     "  --rollback on|off    the adapter is taken back when its probe says it drifted (on)\n"
     "  --contrast on|off    the model's own answers score 0 in between (off)\n",
     eval_garbage, common_help},
    {"natural", "MODEL FILE.jsonl...",
     "corrections as people make them, asked in other words, and what must not have changed",
     "  --each               each correction is taught and asked alone (the default)\n"
     "  --together           all are taught to one learner first, then all are asked\n"
     "  --beside FILE        corrections that are taught to it too, and not asked\n"
     "  --recognise          nothing is generated: counts what would be spoken, and times it\n"
     "  --read               corrections are not spoken but read: their turn stands before a "
     "request\n"
     "  --reading on|off|measured  corrections that are only likely to be asked for are read by "
     "the "
     "model; measured: if it was found to read\n"
     "  --trained            all is asked again after training\n"
     "  --group N            corrections that make an adapter (as ruvllm does it)\n"
     "  --slots on|off       corrections are spoken from memory too (on), or by weights alone\n"
     "  --gate on|off        adapters wait until a correction of theirs is asked for (on)\n"
     "  --embedder DIR       recognises by meaning (all-MiniLM-L6-v2, where it is in the cache)\n"
     "  --no-embedder        recognises by spelling alone\n"
     "  --limit N            only the first N corrections\n"
     "  --seed N             of training (1)\n"
     "  --steps N            of training (the recipe's own)\n"
     "  --rank N             of adapters (8)\n"
     "  --sources N          of texts to train on: 1 forms of the question + 2 the model's own "
     "wordings + 4 parts of it (7)\n"
     "  --rate R             learning rate (0.002)\n"
     "  --dump F             every question, with its answer or what was recognised, as lines of "
     "JSON\n"
     "  --work DIR           keep there what is made once for a model, for the next evaluation\n"
     "  --json               one JSON object\n"
     "  Nothing that was learned before takes part, and nothing is kept.\n",
     eval_natural, NULL},
    {0},
};
