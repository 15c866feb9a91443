#include "base/interrupt.h"

#ifndef __wasi__ /* which has no signals; programs alone use this */

#include <signal.h>
#include <string.h>
#include <unistd.h>

void rvi_interrupt_catch(void (*handler)(int signal), int also_end)
{
    struct sigaction action = {0}; /* no SA_RESTART: a read that waits is to return */
    action.sa_handler = handler;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    if (!also_end) return;
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
}

void rvi_interrupt_leave(int signal, const char *text)
{
    ssize_t n = write(isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO, text, strlen(text));
    (void)n;
    _exit(128 + signal);
}

#endif
