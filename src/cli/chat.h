/* chat.h - a conversation line by line: a line is a message or a command. On a terminal there is a
 * line editor; otherwise messages are answered greedily unless options say otherwise. */
#ifndef RVI_CLI_CHAT_H
#define RVI_CLI_CHAT_H

#include "cli/generation.h"

/* An exit status. */
int cli_chat_with(cli *c, const char *model, cli_generation *g);

#endif
