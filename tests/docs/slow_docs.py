"""What the documents say is what the tree does. Prints TAP.

Checked in README.md, CONTRIBUTING.md, CHANGELOG.md, and the .md files of docs/, bench/ and tests/:
 - A code block with lines "$ COMMAND" is a session: each command is run in the repository's root
   and must succeed; where lines follow it, they are what it prints to standard output. Line breaks
   and runs of blanks do not count, so long answers may be wrapped; a line "..." stands for any
   text. Lines "> TEXT" are typed into the command. The sessions of a document share a new state
   directory. Commands that need a model are skipped where it is not in the cache.
 - A block of C with a main() compiles without a warning against include/ and the library, and runs
   with a tiny model as its argument and as model.gguf.
 - `make TARGET`, `ruvllm COMMAND --option`, paths of the tree, rv_* and RV_* names exist.
 - Counts are right: FIGURES below says how each is counted.
"""
import glob
import os
import re
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TINY = os.path.join(ROOT, "tests/gguf/llama-spm.gguf")
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "minilm": "all-MiniLM-L6-v2"}
# Targets that are too long, need packages or change the machine: that they exist is enough.
NOT_RUN = re.compile(r"\b(sudo|apt|git clone|make (test|test-all|test-slow|tsan|fuzz|cross|install|"
                     r"wasm-check|conformance|bench|check|format|clean|uninstall))\b")
results = []


def case(name, ok, detail="", skip=False):
    results.append((name, ok, detail, skip))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def documents():
    names = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    for folder in ("docs", "bench", "tests"):
        names += sorted(os.path.relpath(p, ROOT) for p in glob.glob(f"{ROOT}/{folder}/*.md"))
    return names


def blocks(text):
    """(first line's number, language, lines) of the fenced code blocks."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        fence = re.match(r"\s*```(\w*)", lines[at])
        if fence:
            end = at + 1
            while end < len(lines) and not lines[end].lstrip().startswith("```"):
                end += 1
            yield at + 2, fence[1], lines[at + 1:end]
            at = end
        at += 1


# ---- sessions ----

def commands(lines):
    """(offset, command, typed lines, expected lines) of a session."""
    out, at = [], 0
    while at < len(lines):
        if lines[at].startswith("$ "):
            offset, command = at, lines[at][2:]
            while command.endswith("\\") and at + 1 < len(lines):
                at += 1
                command = command[:-1] + lines[at].strip()
            out.append((offset, command, [], []))
        elif out:
            typed = lines[at].startswith("> ")
            out[-1][2 if typed else 3].append(lines[at][2:] if typed else lines[at])
        at += 1
    return out


def as_pattern(lines):
    """The lines as a regular expression for text whose blanks are runs of one."""
    parts, words = [], []
    for line in lines:
        if line.strip() == "...":
            parts.append(" ".join(words))
            words = []
        else:
            words += line.split()
    parts.append(" ".join(words))
    return r"\s?.*\s?".join(re.escape(p) for p in parts)


def missing_model(command, cache):
    names = [n for n in MODELS if re.search(rf"\b{n}\b", command)]
    if re.search(r"\bmake\b.*\brun\b", command) and "MODEL=" not in command:
        names.append("smollm2")
    for name in names:
        if not os.path.exists(os.path.join(cache, "models", MODELS[name])):
            return name
    return None


def run_session(name, first, lines, env):
    for offset, command, typed, expected in commands(lines):
        title = f"{name}:{first + offset}: $ {command}"
        if NOT_RUN.search(command):
            continue
        model = missing_model(command, env["RUVLLM_CACHE_DIR"])
        if model:
            case(title, True, f"{model} is not in the cache", skip=True)
            continue
        text = "".join(line + "\n" for line in typed)
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, env=env,
                              input=text, capture_output=True, text=True, check=False)
        ok, detail = done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-1500:]}"
        shown = [line for line in expected if line.strip()]
        if ok and shown:
            printed = " ".join(done.stdout.split())
            ok = re.fullmatch(as_pattern(shown), printed, re.S) is not None
            detail = "printed:\n" + done.stdout[-3000:]
        case(title, ok, detail)


# ---- C ----

def run_program(name, first, lines, folder):
    title = f"{name}:{first}: the C program"
    source, program = os.path.join(folder, "doc.c"), os.path.join(folder, "doc")
    with open(source, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    libraries = [p for p in (f"{ROOT}/build/libruvllm-store.a", f"{ROOT}/build/libruvllm.a")
                 if os.path.exists(p)]
    if "ruvllm_store.h" not in "\n".join(lines):
        libraries = libraries[-1:]
    extra = ["-lsqlite3"] if len(libraries) > 1 else []
    done = subprocess.run(["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include",
                           source, *libraries, *extra, "-lm", "-pthread", "-o", program],
                          capture_output=True, text=True, check=False)
    if done.returncode == 0:
        if not os.path.exists(os.path.join(folder, "model.gguf")):
            os.symlink(TINY, os.path.join(folder, "model.gguf"))
        done = subprocess.run([program, TINY], cwd=folder, capture_output=True, text=True,
                              errors="replace", check=False)
    case(title, done.returncode == 0, done.stderr + done.stdout)


# ---- names ----

def code_spans(text):
    """The text in `...` of prose, and the lines of code blocks that are not C."""
    for _, language, lines in blocks(text):
        if language != "c":
            yield from lines
    prose = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.S | re.M)
    for span in re.findall(r"`([^`]+)`", prose):
        yield " ".join(span.split())


def targets():
    names = set()
    for line in read("Makefile").split("\n"):
        found = re.match(r"([A-Za-z][\w-]*(?: [\w-]+)*):(?!=)", line)
        if found:
            names.update(found[1].split())
    return names


def check_make(name, text, known):
    unknown = set()
    for span in code_spans(text):
        for words in re.findall(r"(?:^|[;&|(] *|\$ )make((?: +[^\s`;|&#)]+)*)", span):
            for word in words.split():
                if word.startswith("-") or "=" in word:
                    continue
                if not re.fullmatch(r"[\w./-]+", word) or word.isupper():
                    break
                if word not in known and not word.startswith("build/"):
                    unknown.add(word)
                break
    case(f"{name}: the make targets exist", not unknown, ", ".join(sorted(unknown)))


def help_of(command=None):
    arguments = [os.path.join(ROOT, "ruvllm")] + ([command] if command else []) + ["--help"]
    return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout


def check_commands(name, text, known, helps):
    wrong = set()
    uses = r"(?:^|[;&|(] *|\$ |\./|  )ruvllm ([a-z]+)\b((?:(?!  ruvllm )[^|;])*)"
    for span in code_spans(text):
        for word, rest in re.findall(uses, span):
            if word not in known:
                wrong.add(f"ruvllm {word}")
                continue
            helps.setdefault(word, help_of(word))
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest.split("#")[0]):
                if not re.search(re.escape(option) + r"(?![a-z-])", helps[word]):
                    wrong.add(f"ruvllm {word} {option}")
    case(f"{name}: the commands and options exist", not wrong, ", ".join(sorted(wrong)))


def check_paths(name, text):
    wrong = set()
    folders = r"(?:src|tests|tools|docs|bench|include|examples|packaging|\.ci)"
    pattern = rf"(?<![\w/.~-])({folders}/[\w./*-]*)"
    for span in code_spans(text):
        for path in re.findall(pattern, span):
            path = path.rstrip(".")
            if "foo" in path or path.endswith("_") or "<" in span:
                continue
            if not any(glob.glob(os.path.join(ROOT, path + end)) for end in ("", ".*")):
                wrong.add(path)
    case(f"{name}: the paths exist", not wrong, ", ".join(sorted(wrong)))


def check_api_names(name, text, headers):
    wrong = set()
    for word in re.findall(r"(?<![\w-])(?:rv|RV)_\w+\*?(?:\.\w+)?", text):
        if word == "rv_noun_verb":  # the pattern of the names
            continue
        whole, _, field = word.partition(".")
        if whole.endswith(("*", "_")):
            found = re.search(rf"\b{whole.rstrip('*')}", headers)
        else:
            found = re.search(rf"\b{whole}\b|\bX\({whole[3:]},", headers)
        if not found or field and not re.search(rf"\b{field}\b", headers):
            wrong.add(word)
    case(f"{name}: the names of the API exist", not wrong, ", ".join(sorted(wrong)))


# ---- figures ----

def n_functions(path):
    return len(re.findall(r"^RV_API\b", read(path), re.M))


def functions_of_api(match, paragraph):
    """NN functions: of the headers named in the paragraph, or of one header, or of all."""
    counts = {os.path.basename(p): n_functions(os.path.relpath(p, ROOT))
              for p in glob.glob(f"{ROOT}/include/*.h")}
    named = [n for n in counts if f"{n}`" in paragraph or f"<{n}>" in paragraph]
    right = {counts[n] for n in named} or {counts["ruvllm.h"], sum(counts.values())}
    return int(match[1]) in right, f"{match[0]}: the headers have {counts}"


def sampler_cases(match, _):
    text = read("tests/decode/data/sampler_vectors.inc")
    counted = []
    for name in ("vectors", "mirostat_vectors"):
        rows = re.search(rf"\b{name}\[\] = {{\n(.*?)^}};", text, re.S | re.M)[1]
        counted.append(len(re.findall(r"^    {", rows, re.M)))
    return [int(match[1]), int(match[2])] == counted, f"{match[0]}: the file has {counted}"


def gguf_models(match, _):
    files = [os.path.basename(p) for p in glob.glob(f"{ROOT}/tests/gguf/*.gguf")]
    types = len([f for f in files if f.startswith("q-")])
    kinds = len([f for f in files if not f.startswith("q-")])
    right = int(match[1]), int(match[2])
    return right == (kinds, types), f"{match[0]}: there are {kinds}, {types}"


FIGURES = [
    (r"\b(\d+) (?:public )?functions\b", functions_of_api),
    (r"\b(\d+) cases, (\d+) mirostat sequences", sampler_cases),
    (r"\b(\d+) kinds of tiny GGUF models and (\d+) weight types", gguf_models),
]


def check_figures(name, text):
    for paragraph in re.split(r"\n\s*\n|\n(?=[-|*] )", text):
        for pattern, right in FIGURES:
            for match in re.finditer(pattern, " ".join(paragraph.split())):
                ok, detail = right(match, paragraph)
                case(f"{name}: {match[0]}", ok, detail)


# ---- everything ----

def run_blocks(name, shared):
    """The sessions and programs of a document, which share a state directory."""
    state = tempfile.mkdtemp(dir=shared["folder"])
    env = dict(shared["env"], RUVLLM_STATE_DIR=state)
    for first, language, lines in blocks(read(name)):
        if language == "c" and any(re.match(r"int main\(", line) for line in lines):
            run_program(name, first, lines, state)
        elif any(line.startswith("$ ") for line in lines):
            run_session(name, first, lines, env)


def check_names(name, shared):
    text = read(name)
    check_make(name, text, shared["targets"])
    check_commands(name, text, shared["commands"], shared["helps"])
    if name != "CHANGELOG.md":  # it also names what is gone
        check_paths(name, text)
        check_api_names(name, text, shared["headers"])
    check_figures(name, text)


def main(others=False):
    """others: only the sessions and programs of the documents beside the README."""
    cache = os.environ.get("RUVLLM_CACHE_DIR") or os.path.expanduser("~/.cache/ruvllm")
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, RUVLLM_CACHE_DIR=cache, MAKEFLAGS="", NO_COLOR="1",
                   PATH=f"{ROOT}:{os.environ['PATH']}")
        shared = {
            "folder": folder, "env": env, "targets": targets(), "helps": {},
            "commands": set(re.findall(r"^  ([a-z]+) ", help_of(), re.M)) | {"help"},
            "headers": "".join(read(os.path.relpath(p, ROOT))
                               for p in glob.glob(f"{ROOT}/include/*.h")),
        }
        for name in documents():
            if (name != "README.md") == others:
                run_blocks(name, shared)
            if not others:
                check_names(name, shared)
    print(f"1..{len(results)}" + ("" if results else " # SKIP nothing to run"))
    for i, (name, ok, detail, skip) in enumerate(results, 1):
        print(f"{'ok' if ok else 'not ok'} {i} " + (f"# SKIP {name}" if skip else f"- {name}"))
        if not ok or skip:
            print("".join(f"#   {line}\n" for line in detail.splitlines()), end="")


if __name__ == "__main__":
    main()
