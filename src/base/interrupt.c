#include "base/interrupt.h"

#ifndef __wasi__ /* which has no signals; programs alone use this */

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* The modes that were found, valid while `hidden`; a handler reads them. */
static struct termios found;
static atomic_int hidden;

void rvi_interrupt_hide_keys(int hide)
{
    if (hide && !atomic_load(&hidden)) {
        if (tcgetattr(STDIN_FILENO, &found)) return;
        struct termios quiet = found;
        quiet.c_lflag &= ~(tcflag_t)ECHOCTL;
        atomic_store(&hidden, 1);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    } else if (!hide && atomic_load(&hidden)) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &found);
        atomic_store(&hidden, 0);
    }
}

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
    if (atomic_load(&hidden)) (void)tcsetattr(STDIN_FILENO, TCSANOW, &found);
    ssize_t n = write(isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO, text, strlen(text));
    (void)n;
    _exit(128 + signal);
}

#endif
