/* eval: how well learning works, by questions with known answers */
#include <string.h>

#include "cli/eval.h"

static const struct {
    const char *name;
    int (*run)(cli *c, int argc, char **argv);
} kinds[] = {
    {"facts", eval_facts},   {"seq", eval_seq},         {"pref", eval_pref},
    {"thumbs", eval_thumbs}, {"garbage", eval_garbage},
};

int cli_eval(cli *c, int argc, char **argv)
{
    if (argc && argv[0][0] != '-') {
        for (size_t i = 0; i < RVI_COUNT(kinds); i++)
            if (!strcmp(argv[0], kinds[i].name)) return kinds[i].run(c, argc - 1, argv + 1);
        return cli_usage(c, "there is no evaluation '%s'", argv[0]);
    }
    const char *args[1];
    int n_args;
    bool done;
    int code = cli_parse(c, NULL, 0, argc, argv, args, 1, &n_args, &done);
    return code || done
               ? code
               : cli_usage(c, "which evaluation comes first: facts, seq, pref, thumbs or garbage");
}
