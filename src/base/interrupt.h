/* interrupt.h - signals by which a user or the system asks a program to stop. Only programs use
 * this: the library leaves signals alone. */
#ifndef RVI_BASE_INTERRUPT_H
#define RVI_BASE_INTERRUPT_H

/* From now on handler is called, in signal context, for an interrupt (SIGINT, Ctrl-C) and, with
 * also_end, for requests to end (SIGTERM, SIGHUP) too. Blocking reads return with an error then. */
void rvi_interrupt_catch(void (*handler)(int signal), int also_end);

/* A terminal at standard input shows no ^C where an interrupt is typed, until it is asked to again.
 * Nothing where standard input is no terminal. */
void rvi_interrupt_hide_keys(int hide);

/* Puts the terminal's modes back, writes text to standard output where that is a terminal, else to
 * standard error, and ends the process at once with status 128 + signal. For handlers. */
void rvi_interrupt_leave(int signal, const char *text);

#endif
