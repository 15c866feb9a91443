/* interrupt.h - signals by which a user or the system asks a program to stop. Only programs use
 * this: the library leaves signals alone. */
#ifndef RVI_BASE_INTERRUPT_H
#define RVI_BASE_INTERRUPT_H

#include <stdbool.h>

/* From now on handler is called, in signal context, for an interrupt (SIGINT, Ctrl-C) and, with
 * also_end, for requests to end (SIGTERM, SIGHUP). A signal ends blocking reads with an error. */
void rvi_interrupt_catch(void (*handler)(int signal), int also_end);

/* hide: the terminal at standard input stops echoing ^C when an interrupt is typed; 0 turns the
 * echo on again. Does nothing if standard input is not a terminal. */
void rvi_interrupt_hide_keys(int hide);

/* Reads a byte of standard input: 1, 0 at its end, -1 with errno otherwise. EINTR: `caught` says
 * that an interrupt came, before the call or while it waited; what was typed behind it is still to
 * be read. Other signals are waited out. */
int rvi_interrupt_read(char *byte, bool (*caught)(void));

/* Restores the terminal's modes, writes text to standard output if that is a terminal, otherwise to
 * standard error, and ends the process at once: no thread is waited for, none is idle while it ends
 * (base/thread.h), and the system frees the memory. May be called in a signal handler. */
void rvi_interrupt_leave(int status, const char *text);

/* Does that in `ms` milliseconds unless the process has ended by then, whatever it is doing. What
 * streams hold back is lost: flush them first. text must stay valid. May be called in a signal
 * handler. */
void rvi_interrupt_leave_within(int ms, int status, const char *text);

#endif
