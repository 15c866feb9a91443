/* chat.h - a conversation line by line. On a terminal it has a line editor and commands; otherwise
 * every line of standard input is a turn, answered greedily unless options say otherwise. */
#ifndef RVI_CLI_CHAT_H
#define RVI_CLI_CHAT_H

#include "cli/generation.h"

/* An exit status. */
int cli_chat_with(cli *c, const char *model, cli_generation *g);

#endif
