#!/usr/bin/env python3
"""template_features.py - which parts of Jinja2 a set of chat templates uses, with the number of
templates that use each.

    tools/template_features.py FILE.jinja|FILE.json ...      a .json file is searched for
        strings under "template" and "chat_template" keys, and its string members

Prints statements, filters, tests, functions, methods, loop attributes and operators, the most used
first. This is how the list in src/template/jinja.h was made; tests/template/data names no
templates of others.
"""
import collections
import json
import sys

import jinja2.ext
import jinja2.nodes as n
from jinja2.sandbox import ImmutableSandboxedEnvironment
from make_jinja_vectors import Generation

METHODS_OF_LOOP = {
    "index",
    "index0",
    "first",
    "last",
    "length",
    "revindex",
    "revindex0",
    "previtem",
    "nextitem",
    "depth",
    "depth0",
    "cycle",
     "changed"}


def features(tree):
    found = set()
    called = {id(c.node) for c in tree.find_all(n.Call)}
    for node in tree.find_all(n.Node):
        kind = type(node).__name__
        if isinstance(node, n.Filter):
            found.add(("filter", node.name))
            found.update(("filter argument", f"{node.name}({k.key}=)") for k in node.kwargs)
            if node.name in ("map", "select", "reject", "selectattr", "rejectattr"):
                for arg in node.args:
                    if isinstance(arg, n.Const):
                        found.add(("name given to " + node.name, str(arg.value)))
        elif isinstance(node, n.Test):
            found.add(("test", node.name))
        elif isinstance(node, n.Call) and isinstance(node.node, n.Name):
            found.add(("function", node.node.name))
        elif isinstance(node, n.Getattr):
            loop = isinstance(node.node, n.Name) and node.node.name == "loop"
            if loop:
                found.add(("loop attribute", node.attr))
            elif id(node) in called:
                found.add(("method", node.attr))
        elif isinstance(node, n.Getitem) and isinstance(node.arg, n.Slice):
            found.add(("operator", "slice" + (" with step" if node.arg.step else "")))
        elif isinstance(node, n.Operand):
            found.add(("operator", node.op))
        elif isinstance(node, (n.BinExpr, n.UnaryExpr)):
            found.add(("operator", node.operator))
        elif isinstance(node, n.Expr):
            found.add(("expression", kind))
        elif isinstance(node, n.Stmt):
            found.add(("statement", kind))
            if isinstance(node, n.For):
                found.update(("statement", "For " + w) for w, on in (("recursive",
                             node.recursive), ("else", node.else_), ("if", node.test)) if on)
    return found


def texts(path):
    if not path.endswith(".json"):
        with open(path, encoding="utf-8") as f:
            yield path, f.read()
        return

    def walk(value, key):
        if isinstance(value, str):
            if key in ("template", "chat_template"):
                yield key, value
        elif isinstance(value, dict):
            for k, v in value.items():
                yield from walk(v, k)
        elif isinstance(value, list):
            for v in value:
                yield from walk(v, key)

    with open(path, encoding="utf-8") as f:
        yield from walk(json.load(f), "")


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.policies["compiler.ascii_str"] = False
    seen, counts, total = set(), collections.Counter(), 0
    for path in sys.argv[1:]:
        for name, text in texts(path):
            if text in seen:
                continue
            seen.add(text)
            try:
                counts.update(features(env.parse(text)))
                total += 1
            except jinja2.TemplateSyntaxError as e:
                print(f"{name}: {e}", file=sys.stderr)
    print(f"{total} templates")
    for kind in sorted({k for k, _ in counts}):
        row = sorted(((c, name) for (k, name), c in counts.items() if k == kind), reverse=True)
        print(f"{kind}: " + ", ".join(f"{name} {c}" for c, name in row))


if __name__ == "__main__":
    main()
