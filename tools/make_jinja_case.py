#!/usr/bin/env python3
"""make_jinja_case.py - writes src/template/jinja_case_data.c: what Python's str methods know of
characters.

    tools/make_jinja_case.py | clang-format > src/template/jinja_case_data.c

Runs are (first, last, step): the members are first, first + step, ..., last. The tables are those
of the Unicode version of the Python that runs this (3.11: Unicode 14), beyond ASCII only where
ASCII is handled by the code.
"""
import sys
import unicodedata


def chars():
    return (chr(c) for c in range(0x80, 0x110000) if not 0xD800 <= c <= 0xDFFF)


def runs(points, key=lambda c: 0):
    """Greedy runs of step 1 or 2 of neighbours with the same key; no run reaches into the next
    one."""
    points, out, i = sorted(points), [], 0
    while i < len(points):
        best = i, 1
        for step in (1, 2):
            j = i
            while j + 1 < len(points) and points[j + 1] - points[j] == step and key(points[j
                    + 1]) == key(points[i]):
                j += 1
            if j > best[0]:
                best = j, step
        out.append((points[i], points[best[0]], best[1]))
        i = best[0] + 1
    return out


def mapping_runs(mapping):
    """Runs of characters with the same distance to their image."""
    delta = {c: to - c for c, to in mapping.items()}
    return [(*r, delta[r[0]]) for r in runs(delta, delta.get)]


def table(ctype, name, rows):
    print(f"const {ctype} rvi_jcase_{name}[] = {{")
    line = "   "
    for row in rows:
        text = " {" + ", ".join(f"0x{v:X}" if v >= 10 else str(v) for v in row) + "},"
        if len(line) + len(text) > 116:
            print(line)
            line = "   "
        line += text
    print(line)
    print("};")
    print(f"const size_t rvi_jcase_n_{name} = sizeof rvi_jcase_{name} / sizeof "
          f"rvi_jcase_{name}[0];\n")


def expansions(function):
    """Images of more than one character; for title case also those that differ from upper case."""
    out = []
    for c in chars():
        image = function(c)
        if len(image) > 1 or (function is str.title and image != c.upper()):
            out.append((ord(c), *[ord(x) for x in image], *[0] * (3 - len(image))))
    return out


def main():
    print("/* jinja_case_data.c - character tables of the template language. Written by "
          "tools/make_jinja_case.py from\n"
          f" * Unicode {unicodedata.unidata_version}; do not edit. */\n"
          '#include "template/jinja_case.h"\n')
    table("rvi_jcase_run", "alpha", runs(ord(c) for c in chars() if c.isalpha()))
    table("rvi_jcase_run", "numeric", runs(ord(c) for c in chars() if c.isalnum()
                                           and not c.isalpha()))
    table("rvi_jcase_run", "digit", runs(ord(c) for c in chars() if c.isdigit()))
    table("rvi_jcase_run", "is_lower", runs(ord(c) for c in chars() if c.islower()))
    table("rvi_jcase_run", "is_upper", runs(ord(c) for c in chars() if c.isupper()))
    table("rvi_jcase_run", "is_title", runs(ord(c) for c in chars() if c.istitle()
                                            and not c.isupper()))
    table("rvi_jcase_run", "ignorable", runs(ord(c) for c in chars() if ignorable(c)))
    table("rvi_jcase_run", "unprintable", runs(ord(c) for c in chars() if not c.isprintable()))
    table("rvi_jcase_map", "to_upper", mapping_runs({ord(c): ord(c.upper()) for c in chars()
                                                     if len(c.upper()) == 1 and c.upper() != c}))
    table("rvi_jcase_map", "to_lower", mapping_runs({ord(c): ord(c.lower()) for c in chars()
                                                     if len(c.lower()) == 1 and c.lower() != c}))
    table("rvi_jcase_long", "upper_long", expansions(str.upper))
    table("rvi_jcase_long", "lower_long", expansions(str.lower))
    table("rvi_jcase_long", "title_long", expansions(str.title))


def ignorable(c):
    """Does Python skip c when it decides whether a capital sigma ends a word?"""
    return ("A" + c + "\u03a3").lower()[-1] == "\u03c2" and ("1" + c
        + "\u03a3").lower()[-1] == "\u03c3"


if __name__ == "__main__":
    sys.exit(main())
