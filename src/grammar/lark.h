/* lark.h - grammars in Lark's notation, written as GBNF.
 *
 * Texts are those that Lark's Earley parser reads with the lexer "dynamic_complete": a text may be
 * cut into terminals in any way; what is ignored may end anywhere, too (Lark: the longest).
 * Taken are rules and terminals with alternatives, groups, ( ), [ ], ? * + ~n ~n..m, texts with the
 * flag i, expressions with the flags i and s, ranges "a".."z", aliases and priorities (which decide
 * nothing here), %ignore, %import of common, and %json {...} as an item. A rule that begins with
 * itself becomes one that repeats; other circles at the beginning are refused by whoever reads the
 * result. Templates, %declare, %override, %extend and imports of files are refused. */
#ifndef RVI_GRAMMAR_LARK_H
#define RVI_GRAMMAR_LARK_H

#include "base/error.h"
#include "base/mem.h"

/* Appends the grammar to out. */
rv_status rvi_lark_to_gbnf(rvi_buf *out, const char *text, size_t len,
                           rv_error *err) RVI_MUST_CHECK;

#endif
