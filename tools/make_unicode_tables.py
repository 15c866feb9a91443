#!/usr/bin/env python3
"""make_unicode_tables.py - writes the character tables of the library.

    make_unicode_tables.py src/text [FILE ...]

writes unicode_tables.c (categories, folding, lower case, properties, widths), case_tables.c (upper
and title case) and normal_form_tables.c (combining classes, decompositions, compositions) there, or
only the files named.

Character data come from the package unicodedata2 (pip install unicodedata2==16.0.0). Scripts and
derived properties come from the package `regex`, cut down to the characters that this version
assigns. Case mappings come from Python itself; letters that are newer than Python's own data are
paired by their names ("... CAPITAL LETTER ..." and "... SMALL LETTER ...").
"""
import os
import sys
import unicodedata

import regex
import unicodedata2 as ud

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Cs Co Cn").split()
SCRIPTS = "Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Latin Thai".split()
LAST = 0x10FFFF


def emit(head, items, width=119):
    print(head + " = {")
    line = "    "
    for x in items:
        if len(line) + 1 + len(x) > width:
            print(line)
            line = "    "
        line += x + ","
    print(line)
    print("};\n")


def ranges(members):
    out = []
    for c in members:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def mapping_runs(pairs):
    """(cp, target) pairs as runs of equal distance and step: first, last, step, distance."""
    out = []
    for cp, to in pairs:
        if out:
            r = out[-1]
            step = cp - r[1]
            if to - cp == r[3] and (step in (1, 2) if r[0] == r[1] else step == r[2]):
                r[1], r[2] = cp, step
                continue
        out.append([cp, cp, 1, to - cp])
    return out


def newer_letters():
    """Pairs (capital, small) of which Python's own data lack the capital letter."""
    for c in range(LAST + 1):
        if ud.category(chr(c)) == "Lu" and unicodedata.category(chr(c)) == "Cn":
            yield c, ord(ud.lookup(ud.name(chr(c)).replace("CAPITAL", "SMALL")))


NEWER_LOWER = dict(newer_letters())
NEWER_UPPER = {small: capital for capital, small in NEWER_LOWER.items()}


def simple_fold(c):
    if c in NEWER_LOWER:
        return NEWER_LOWER[c]
    s = chr(c)
    for t in (s.casefold(), s.lower()):
        if len(t) == 1:
            return ord(t)
    return c


def lower(c):
    if c in NEWER_LOWER:
        return NEWER_LOWER[c]
    return ord(chr(c).lower()) if len(chr(c).lower()) == 1 else c


def upper(c):
    """The upper case of a character as a string."""
    return chr(NEWER_UPPER[c]) if c in NEWER_UPPER else chr(c).upper()


def title(c):
    return upper(c) if c in NEWER_UPPER else chr(c).title()


def main():
    version = ud.unidata_version
    if version != "16.0.0":
        sys.exit("character data of version 16.0.0 are needed, not " + version)
    every = range(LAST + 1)
    cat = [ud.category(chr(c)) for c in every]

    def begin(name):
        wanted = len(sys.argv) == 2 or name in sys.argv[2:]
        sys.stdout = open(os.path.join(sys.argv[1], name) if wanted else os.devnull, "w",
                          encoding="ascii", newline="\n")
        print("/* %s - character data of Unicode %s, written by tools/make_unicode_tables.py; do "
              "not edit. */" %
              (name, version))
        print('#include "text/unicode_tables.h"\n')

    begin("unicode_tables.c")
    starts = [c for c in every if c == 0 or cat[c] != cat[c - 1]]
    print("/* first code point << 8 | category; holds up to the next entry */")
    emit("const uint32_t rvi_unicode_categories[]", ["%d" % (c << 8 | CATEGORIES.index(cat[c]))
                                                     for c in starts])
    print("const size_t rvi_unicode_n_categories = %d;\n" % len(starts))

    for name, what, f in (("fold", "simple case folding", simple_fold),
                          ("lower", "lower case, one to one", lower)):
        runs = mapping_runs([(c, f(c)) for c in every if f(c) != c])
        print("/* %s: first, last, step, distance */" % what)
        emit("const rvi_unicode_mapping rvi_unicode_%s[]" % name,
             ["{%d,%d,%d,%d}" % tuple(r) for r in runs])
        print("const size_t rvi_unicode_n_%s = %d;\n" % (name, len(runs)))

    derived = []
    for name, without in (("Alphabetic", "Lu Ll Lt Lm Lo Nl"), ("Uppercase", "Lu"),
                          ("Lowercase", "Ll")):
        p, out = regex.compile(r"\p{%s}" % name), without.split() + ["Cn", "Cs"]
        derived.append(("Other_" + name,
                        [c for c in every if cat[c] not in out and p.match(chr(c))]))
    for s in SCRIPTS:
        p = regex.compile(r"\p{Script=%s}" % s)
        derived.append((s, [c for c in every if cat[c] not in ("Cn", "Cs") and p.match(chr(c))]))
    flat, index = [], []
    for name, members in derived:
        r = ranges(members)
        index.append('{"%s",%d,%d}' % (name, len(flat), len(r)))
        flat += r
    print("/* first, last */")
    emit("const rvi_unicode_range rvi_unicode_ranges[]", ["{%d,%d}" % tuple(r) for r in flat])
    print("/* name, first range, number of ranges */")
    emit("const rvi_unicode_property rvi_unicode_properties[]", index)
    print("const size_t rvi_unicode_n_properties = %d;\n" % len(index))

    wide = ranges([c for c in every if ud.east_asian_width(chr(c)) in "WF"])
    print("/* two columns wide on a terminal (East_Asian_Width W or F): first, last */")
    emit("const rvi_unicode_range rvi_unicode_wide[]", ["{%d,%d}" % tuple(r) for r in wide])
    print("const size_t rvi_unicode_n_wide = %d;" % len(wide))

    begin("case_tables.c")
    runs = mapping_runs([(c, ord(upper(c))) for c in every
                         if len(upper(c)) == 1 and upper(c) != chr(c)])
    print("/* upper case, one to one: first, last, step, distance */")
    emit("const rvi_unicode_mapping rvi_unicode_upper[]",
         ["{%d,%d,%d,%d}" % tuple(r) for r in runs])
    print("const size_t rvi_unicode_n_upper = %d;\n" % len(runs))
    for name, what, image in (("upper_long", "upper case of more than one character", upper),
                              ("title_long", "title case that is not the upper case", title)):
        rows = [(c, image(c)) for c in every if not 0xD800 <= c <= 0xDFFF]
        rows = [(c, to) for c, to in rows
                if (len(to) > 1 if name == "upper_long" else to != upper(c))]
        print("/* %s: from, to */" % what)
        emit("const rvi_unicode_expansion rvi_unicode_%s[]" % name,
             ["{%d,{%s}}" % (c, ",".join(str(ord(x)) for x in to)) for c, to in rows])
        print("const size_t rvi_unicode_n_%s = %d;\n" % (name, len(rows)))

    begin("normal_form_tables.c")
    ccc = []
    for c in every:
        k = ud.combining(chr(c))
        if k and ccc and ccc[-1][1] == c - 1 and ccc[-1][2] == k:
            ccc[-1][1] = c
        elif k:
            ccc.append([c, c, k])
    print("/* canonical combining classes other than 0: first, last, class */")
    emit("const rvi_unicode_class rvi_unicode_ccc[]", ["{%d,%d,%d}" % tuple(r) for r in ccc])
    print("const size_t rvi_unicode_n_ccc = %d;\n" % len(ccc))

    pool, where, rows = [], {}, []
    for c in every:
        if 0xAC00 <= c <= 0xD7A3 or 0xD800 <= c <= 0xDFFF:
            continue
        canonical, compatible = (tuple(map(ord, ud.normalize(f, chr(c)))) for f in ("NFD", "NFKD"))
        for form, mark in ((canonical, 0), (compatible, 1)):
            if form == (c,) or (mark and form == canonical):
                continue
            if form not in where:
                where[form] = len(pool)
                pool.extend(form)
            rows.append((c, where[form], len(form) << 1 | mark))
    print("/* full decompositions: code point, place in the pool, length << 1 | 1 for a compatible "
          "one.\n"
          " * A canonical one comes before the compatible one of the same code point; where both "
          "are equal\n"
          " * only the former is there. */")
    emit("const rvi_unicode_decomposition rvi_unicode_decompositions[]",
         ["{%d,%d,%d}" % r for r in rows])
    print("const size_t rvi_unicode_n_decompositions = %d;\n" % len(rows))
    emit("const uint32_t rvi_unicode_pool[]", ["%d" % c for c in pool])

    pairs = []
    for c in every:
        d = ud.decomposition(chr(c))
        if d and d[0] != "<" and " " in d and ud.normalize("NFC", chr(c)) == chr(c):
            a, b = (int(x, 16) for x in d.split())
            pairs.append((a, b, c))
    print("/* canonical compositions without Hangul: first, second, composed; sorted */")
    emit("const rvi_unicode_pair rvi_unicode_compositions[]",
         ["{%d,%d,%d}" % p for p in sorted(pairs)])
    print("const size_t rvi_unicode_n_compositions = %d;\n" % len(pairs))


main()
