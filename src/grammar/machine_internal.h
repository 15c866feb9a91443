/* machine_internal.h - what the files of machine.h share: frames and lists, and the members of
 * objects. */
#ifndef RVI_GRAMMAR_MACHINE_INTERNAL_H
#define RVI_GRAMMAR_MACHINE_INTERNAL_H

#include "grammar/machine.h"

/* ---- machine.c ---- */

void rvi_machine_fail(rvi_machine *m, rv_status st, const char *why);
void rvi_machine_go(rvi_machine *m, rvi_places *out, rvi_place_kind kind, uint32_t frame,
                    uint32_t arg, uint32_t extra);
rvi_frame rvi_machine_frame(const rvi_machine *m, uint32_t frame);
/* These answer 0 after a failure. */
uint32_t rvi_machine_put(rvi_machine *m, rvi_bag *b, const void *row, size_t n, uint32_t most);
uint32_t rvi_machine_frame_put(rvi_machine *m, const rvi_frame *f);
uint32_t rvi_machine_list_with(rvi_machine *m, uint32_t list, uint32_t item);
uint32_t rvi_machine_plan_number(rvi_machine *m, void *plan, uint32_t *number);
bool rvi_machine_inhabited(rvi_machine *m, rvi_node n);

/* ---- members.c ---- */

struct rvi_opened *rvi_members_new(void); /* NULL: no memory */
rvi_object_plan *rvi_members_plan(const rvi_machine *m, const rvi_frame *f);
void rvi_members_open(rvi_machine *m, uint32_t frame, rvi_object *shape, rvi_places *out);
void rvi_members_begin_key(rvi_machine *m, uint32_t frame, rvi_places *out);
void rvi_members_step_key(rvi_machine *m, const rvi_place *at, uint8_t b, rvi_places *out);
void rvi_members_end_key(rvi_machine *m, uint32_t frame, uint32_t lex, uint32_t text,
                         rvi_places *out);
/* Behind a value, or behind the brace: a comma or the brace that closes. */
void rvi_members_after(rvi_machine *m, uint32_t frame, uint8_t b, rvi_places *out);

/* About how many bytes the object still needs. */
uint32_t rvi_members_owe(rvi_machine *m, uint32_t frame);
/* The character with which a key becomes the one that is needed next; UINT32_MAX: it is not
 * known. */
uint32_t rvi_members_lead(rvi_machine *m, const rvi_place *at);

#endif
