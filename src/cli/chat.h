/* chat.h - a conversation line by line: on a terminal with an editor and commands, elsewhere every
 * line of standard input a turn, answered greedily unless options say otherwise. */
#ifndef RVI_CLI_CHAT_H
#define RVI_CLI_CHAT_H

#include "cli/generation.h"

/* An exit status. */
int cli_chat_with(cli *c, const char *model, cli_generation *g);

#endif
