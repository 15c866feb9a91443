/* interrupt.h - signals by which a user or the system asks a program to stop. Only programs use
 * this: the library leaves signals alone. */
#ifndef RVI_BASE_INTERRUPT_H
#define RVI_BASE_INTERRUPT_H

/* From now on handler is called, in signal context, for an interrupt (SIGINT, Ctrl-C) and, with
 * also_end, for requests to end (SIGTERM, SIGHUP). A signal ends blocking reads with an error. */
void rvi_interrupt_catch(void (*handler)(int signal), int also_end);

/* hide: the terminal at standard input stops echoing ^C when an interrupt is typed; 0 turns the
 * echo on again. Does nothing if standard input is not a terminal. */
void rvi_interrupt_hide_keys(int hide);

/* Restores the terminal's modes, writes text to standard output if that is a terminal, otherwise to
 * standard error, and ends the process at once with status 128 + signal. May be called in a signal
 * handler. */
void rvi_interrupt_leave(int signal, const char *text);

#endif
