#include "base/interrupt.h"

#include "base/thread.h"

#ifndef __wasi__ /* which has no signals; programs alone use this */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/select.h>
#include <sys/time.h>
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

/* An interrupt is let in while this waits, and nowhere else: so none is missed between looking for
 * it and waiting. Where both came, the interrupt was typed first: the terminal drops what is before
 * it. */
int rvi_interrupt_read(char *byte, bool (*caught)(void))
{
    sigset_t interrupt, before, pending;
    ssize_t n = -1;
    (void)sigemptyset(&interrupt);
    (void)sigaddset(&interrupt, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    for (;;) {
        fd_set input;
        FD_ZERO(&input);
        FD_SET(STDIN_FILENO, &input);
        errno = EINTR;
        if (caught()) break;
        if (pselect(STDIN_FILENO + 1, &input, NULL, NULL, NULL, &before) < 0) {
            if (errno == EINTR) continue;
            break;
        }
        if (!sigpending(&pending) && sigismember(&pending, SIGINT) == 1) {
            (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
            (void)pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
            continue;
        }
        n = read(STDIN_FILENO, byte, 1);
        if (n >= 0 || errno != EINTR) break;
    }
    int code = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return (int)n;
}

void rvi_interrupt_leave(int status, const char *text)
{
    rvi_thread_hurry();
    if (atomic_load(&hidden)) (void)tcsetattr(STDIN_FILENO, TCSANOW, &found);
    ssize_t n = write(isatty(STDOUT_FILENO) ? STDOUT_FILENO : STDERR_FILENO, text, strlen(text));
    (void)n;
    _exit(status);
}

/* Set before the timer that leads to leave_late. */
static atomic_int late_status;
static const char *_Atomic late_text = "";

static void leave_late(int signal)
{
    (void)signal;
    rvi_interrupt_leave(atomic_load(&late_status), atomic_load(&late_text));
}

void rvi_interrupt_leave_within(int ms, int status, const char *text)
{
    struct itimerval timer = {.it_value = {ms / 1000, ms % 1000 * 1000}};
    struct sigaction action = {0};
    atomic_store(&late_status, status);
    atomic_store(&late_text, text);
    action.sa_handler = leave_late;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGALRM, &action, NULL);
    (void)setitimer(ITIMER_REAL, &timer, NULL); /* a bare system call, fit for a handler */
}

#endif
