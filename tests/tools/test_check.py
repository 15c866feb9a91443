"""tools/check_source finds each kind of offence in a tree made for it, and nothing else. Prints
TAP."""
import os
import subprocess
import tempfile

FINE = '#include "base/mem.h"\n'
# path, text, what is said about it
TREE = [
    ("src/base/mem.h", "", None),
    ("src/base/fine.c", FINE + "void *f(void) { return malloc(1); }\n", None),
    ("src/model/call.c", "void f(void) { free(0); }\n", "call.c:1: free(): only base may call it"),
    ("src/model/print.c", 'void f(void) { puts("x"); }\n', "the library does not print"),
    ("src/cli/print.c", 'void f(void) { puts("x"); }\n', None),
    ("src/base/never.c", "void f(char *s) { strcpy(s, s); }\n", "strcpy(): not to be used"),
    ("src/base/comment.c", "/* strcpy(a, b) */ const char *s = \"free(x)\";\n", None),
    ("src/base/up.c", '#include "model/a.h"\n', "model is not below base"),
    ("src/template/other.c", '#include "formats/x.h"\n', "template may include only base"),
    ("src/model/system.c", "#include <sys/stat.h>\n", "not a C11 header"),
    ("src/model/local.c", '#include "a.h"\n', "written from src/"),
    ("src/attic/a.c", "", "in no known room"),
    ("src/kv/a.h", '#include "kv/b.h"\n', "headers include each other: kv/a.h, kv/b.h"),
    ("src/kv/b.h", '#include "kv/a.h"\n', None),
    ("src/lora/one.c", '#include "lora/two.h"\n', "modules include each other: lora/one, lora/two"),
    ("src/lora/two.c", '#include "lora/one.h"\n', None),
    ("src/base/wide.c", "/* " + "x" * 100 + " */\n", "wide.c:1: 106 columns; 100 are the most"),
    ("src/kernels/wide.c", "/* " + "x" * 100 + " */\n", None),
    ("src/base/table.c", "/* clang-format off */\n/* " + "x" * 100 + " */\n", None),
    ("src/base/tab.c", "\tint x;\n", "a tab"),
    ("src/base/blank.c", "int x; \n", "white space at the end of the line"),
    ("src/base/end.c", "int x;", "no newline at the end"),
    ("src/base/long.c", "\n" * 1501, "the file has 1501 lines"),
    ("docs/a.md", "word " * 30 + "end\n", "a.md:1: 153 columns"),
    ("docs/b.md", "| " + "word " * 30 + "|\n\n```\n" + "word " * 30 + "end\n```\n", None),
    ("tools/a", "# " + "word " * 30 + "end\n", "tools/a:1: 155 columns"),
    ("tools/b", "# fmt: off\n# " + "word " * 30 + "end\n# fmt: on\n", None),
    ("src/learn/journal/up.c", '#include "learn/instant/x.h"\n', "instant is not below journal"),
    ("src/learn/consolidate/study.c", '#include "learn/state/x.h"\n',
     "state is not below consolidate"),
    ("src/learn/learner/fine.c", '#include "learn/consolidate/study.h"\n', None),
    ("src/learn/attic/a.c", "", "in no known room of src/learn"),
    ("src/grammar/type.h", "typedef struct rvi_two {\n    int x;\n} rvi_two;\n", None),
    ("src/server/type.h", "typedef enum rvi_two { A } x;\ntypedef struct y {\n} rvi_two;\n",
     "type.h:3: rvi_two is a type of grammar/type.h already"),
    ("src/text/a.c", '#include "base/mem.h"\n', None),
    ("src/text/b.c", '#include "formats/x.h"\n', "formats is not below text"),
]


def main():
    with tempfile.TemporaryDirectory() as root:
        for path, text, _ in TREE:
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        run = subprocess.run(["tools/check_source", root], capture_output=True, text=True,
                             check=False)
    lines = run.stdout.splitlines()
    wanted = [(path, said) for path, _, said in TREE if said]
    results = [(f"{path}: {said}", any(said in line and path in line or said in line and
                                       path.split("/")[1] in line for line in lines))
               for path, said in wanted]
    # the circle of headers is one of modules too; the last line is the sum
    results.append(("and nothing else", len(lines) == len(wanted) + 2))
    results.append(("exit status 1", run.returncode == 1))
    print(f"1..{len(results)}")
    for i, (name, ok) in enumerate(results, 1):
        print(f"{'ok' if ok else 'not ok'} {i} - {name}")
    if not all(ok for _, ok in results):
        print("".join(f"# {line}\n" for line in lines + run.stderr.splitlines()), end="")


if __name__ == "__main__":
    main()
