#!/bin/sh
# What `make install` puts into place, used as its users will: compiled against, linked, run, read,
# completed, removed. Prints TAP.
# BUILD and BIN as for make (build, ruvllm). What needs a program that is not here (pkg-config, g++,
# groff, zsh, fish) is skipped.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
log=$tmp/log
n=0

verdict() { # NAME STATUS
    n=$((n + 1))
    if [ "$2" = 0 ]; then echo "ok $n - $1"; else
        echo "not ok $n - $1"
        tail -n 20 "$log" | sed 's/^/# /'
    fi
}
check() { # NAME COMMAND...
    name=$1
    shift
    "$@" >"$log" 2>&1
    verdict "$name" $?
}
skip() {
    n=$((n + 1))
    echo "ok $n # SKIP $1"
}
has() { command -v "$1" >/dev/null; }
# slow_package.sh makes the same files at the same time.
make_() { MAKEFLAGS='' flock build/install.lock make --no-print-directory "$@" \
    DESTDIR="$root" PREFIX=/opt/rv LIBDIR=/opt/rv/lib64; }

root="$tmp/a root"
at=$root/opt/rv
lib=$at/lib64
header=$at/include/ruvllm.h
version=$(awk '/define RV_VERSION_(MAJOR|MINOR|PATCH) / { v = v s $3; s = "." } END { print v }' \
    include/ruvllm.h)
soname=$(sed -n 's/^SONAME *:= *//p' Makefile)

check "make install" make_ install
# shellcheck disable=SC2016
check "the files, and no others" sh -c '
    cd "$1" && find . ! -type d | LC_ALL=C sort >"$2/files" && LC_ALL=C sort >"$2/wanted" <<EOF
./bin/ruvllm
./include/ruvllm.h
./include/ruvllm_experimental.h
./include/ruvllm_grammar.h
./include/ruvllm_learn.h
./include/ruvllm_service.h
./include/ruvllm_store.h
./include/ruvllm_tools.h
./lib64/$3
./lib64/libruvllm-store.a
./lib64/libruvllm-store.so
./lib64/libruvllm-store.so.0
./lib64/libruvllm-store.so.$4
./lib64/libruvllm.a
./lib64/libruvllm.so
./lib64/libruvllm.so.$4
./lib64/pkgconfig/ruvllm-store.pc
./lib64/pkgconfig/ruvllm.pc
./share/bash-completion/completions/ruvllm
./share/doc/ruvllm/LICENSE-APACHE
./share/doc/ruvllm/LICENSE-MIT
./share/fish/vendor_completions.d/ruvllm.fish
./share/man/man1/ruvllm.1
./share/zsh/site-functions/_ruvllm
EOF
    diff "$2/wanted" "$2/files"' sh "$at" "$tmp" "$soname" "$version"
check "nothing was put elsewhere" sh -c \
    'cd "$1" && test "$(find . ! -type d | wc -l)" = "$(find opt/rv ! -type d | wc -l)"' sh "$root"
# shellcheck disable=SC2016
check "what is installed has no debugging data" sh -c '
    for f in "$1/bin/ruvllm" "$2/libruvllm.so" "$2/libruvllm.a"; do
        ! readelf -S "$f" 2>/dev/null | grep "\.debug_" || { echo "$f"; exit 1; }
    done' sh "$at" "$lib"
check "the licences" cmp LICENSE-MIT "$at/share/doc/ruvllm/LICENSE-MIT"
check "the library's links" sh -c \
    'test "$(readlink "$1/libruvllm.so")" = "$2" &&
        test "$(readlink "$1/$2")" = "libruvllm.so.$3"' \
    sh "$lib" "$soname" "$version"
check "the library's soname" \
    sh -c 'readelf -d "$1/libruvllm.so" | grep -F "soname: [$2]"' sh "$lib" "$soname"
check "the program says its version" \
    sh -c '"$1/bin/ruvllm" --version | grep -F "ruvllm $2"' sh "$at" "$version"

# --- the header and what the library exports
cat "$header" "$at/include/ruvllm_learn.h" "$at/include/ruvllm_service.h" \
  "$at/include/ruvllm_grammar.h" \
  "$at/include/ruvllm_tools.h" \
    "$at/include/ruvllm_experimental.h" | tr '\n' ' ' |
    sed 's|/\*|\n/*|g; s|\*/|*/\n|g' \
    | grep -v '^/\*' | tr '\n' ' ' | grep -o 'RV_API [^;]*;' |
    grep -o 'rv_[a-z0-9_]*(' | tr -d '(' | LC_ALL=C sort -u >"$tmp/declared"
nm -D --defined-only "$lib/libruvllm.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' |
    LC_ALL=C sort >"$tmp/exported"
check "the shared library exports the headers' functions, all and alone" diff "$tmp/declared" \
    "$tmp/exported"
check "there are many of them" sh -c 'test "$(wc -l <"$1")" -ge 40' sh "$tmp/declared"

cat >"$tmp/user.c" <<'EOF'
#include <ruvllm.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    rv_error err = {RV_OK, ""};
    rv_runtime *rt = NULL;
    rv_model *m = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    if (argc < 2 || strcmp(rv_version(), EXPECTED)) return 2;
    if (rv_runtime_new(&rt, NULL, &err) || rv_model_open(&m, rt, argv[1], NULL, &err) ||
        rv_tokenize(m, "hello", 5, 0, &ids, &n, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const rv_model_info *info = rv_model_get_info(m);
    printf("%s %d %d\n", info->architecture, info->n_vocab, n > 0);
    rv_free(ids);
    rv_model_close(&m);
    rv_runtime_free(&rt);
    return m || rt ? 3 : 0;
}
EOF
printf '#include <ruvllm.h>\n#include <ruvllm.h>\nint main(void) { return RV_OK; }\n' \
    >"$tmp/alone.c"
cp "$tmp/alone.c" "$tmp/alone.cc"
cp "$tmp/user.c" "$tmp/user.cc"
strict='-pedantic -Wall -Wextra -Wshadow -Wconversion -Werror'
# shellcheck disable=SC2086
check "the header alone as C11" gcc -std=c11 $strict -I"$at/include" -o "$tmp/alone" "$tmp/alone.c"

# --- what pkg-config says, or the file itself where there is none
if has pkg-config; then
    PKG_CONFIG_LIBDIR=$lib/pkgconfig
    export PKG_CONFIG_LIBDIR
    check "pkg-config: version" \
        sh -c 'test "$(pkg-config --modversion ruvllm)" = "$1"' sh "$version"
    cflags=$(pkg-config --cflags ruvllm) libs=$(pkg-config --libs ruvllm) static=$(pkg-config \
        --static --libs ruvllm)
else
    skip "pkg-config is not here"
    field() { sed -n "s/^$1: //p" "$lib/pkgconfig/ruvllm.pc" \
        | sed 's|[$]{libdir}|/opt/rv/lib64|; s|[$]{includedir}|/opt/rv/include|'; }
    cflags=$(field Cflags) libs=$(field Libs) static="$(field Libs) $(field Libs.private)"
fi
echo "cflags '$cflags', libs '$libs', static '$static'" >"$log"
case "$cflags|$libs" in
"-I/opt/rv/include"*"|-L/opt/rv/lib64 -lruvllm"*) verdict "ruvllm.pc: flags" 0 ;;
*) verdict "ruvllm.pc: flags" 1 ;;
esac
case $static in
*-lm*-pthread*) verdict "ruvllm.pc: libraries for static linking" 0 ;;
*) verdict "ruvllm.pc: libraries for static linking" 1 ;;
esac

# The flags name /opt/rv; until DESTDIR is taken away the files are elsewhere, and a link leads
# there without a space.
ln -s "$root" "$tmp/root"
here() { echo "$1" | sed "s|/opt/rv|$tmp/root/opt/rv|g"; }
# shellcheck disable=SC2046,SC2086
build() { # COMPILER SOURCE OUTPUT LIBS...
    compiler=$1 source=$2 output=$3
    shift 3
    $compiler $strict -DEXPECTED="\"$version\"" $(here "$cflags") "$source" $(here "$*") -o \
        "$output"
}
model=tests/gguf/llama-spm.gguf
want='llama 320 1'
check "compile and link, shared" build "gcc -std=c11" "$tmp/user.c" "$tmp/shared" "$libs"
check "it needs the soname" \
    sh -c 'readelf -d "$1" | grep -F "NEEDED" | grep -F "[$2]"' sh "$tmp/shared" "$soname"
check "it runs" sh -c 'test "$(LD_LIBRARY_PATH=$1 "$2" "$3")" = "$4"' sh "$lib" "$tmp/shared" \
    $model "$want"
rm "$lib/libruvllm.so"
check "compile and link, static" build "gcc -std=c11" "$tmp/user.c" "$tmp/static" "$static"
check "it does not need the shared library" \
    sh -c '! readelf -d "$1" | grep -F ruvllm' sh "$tmp/static"
check "it runs by itself" sh -c 'test "$("$1" "$2")" = "$3"' sh "$tmp/static" $model "$want"
ln -s "$soname" "$lib/libruvllm.so"
if has g++; then
    # shellcheck disable=SC2086
    check "the header alone as C++17" g++ -std=c++17 $strict -I"$at/include" -o "$tmp/alone" \
        "$tmp/alone.cc"
    check "compile and link, C++17" build "g++ -std=c++17" "$tmp/user.cc" "$tmp/cxx" "$libs"
    check "it runs" sh -c 'test "$(LD_LIBRARY_PATH=$1 "$2" "$3")" = "$4"' sh "$lib" "$tmp/cxx" \
        $model "$want"
else
    skip "g++ is not here"
fi

# --- the manual page
page=$at/share/man/man1/ruvllm.1
# shellcheck disable=SC2016
check "the manual page names every command and the global options" sh -c '
    for word in $("$1" --help | sed -n "/^everywhere:/q; s/^  \([a-z][a-z-]*\).*/\1/p"); do
        grep -q "^\.SS .fB$word.fR" "$2" || { echo "no $word"; exit 1; }
    done
    grep -q "threads" "$2" && grep -q "^\.SH EXIT STATUS" "$2" &&
        grep -q "^\.SH EXAMPLES" "$2"' sh "$at/bin/ruvllm" "$page"
# shellcheck disable=SC2016
check "the manual page has a paragraph for each action of learn" sh -c '
    for word in status run pause undo rollback export import merge log forget; do
        grep -A 1 "^\.TP" "$1" | grep -q "^.fB$word.fR" || { echo "no $word"; exit 1; }
    done' sh "$page"
if has groff; then
    # shellcheck disable=SC2016
    check "the manual page is formatted without a warning" sh -c '
        groff -man -ww -Tutf8 "$1" >"$2/page" 2>"$2/warnings"
        cat "$2/warnings"
        test -s "$2/page" && ! test -s "$2/warnings"' sh "$page" "$tmp"
else
    skip "groff is not here"
fi

# --- completions
# shellcheck disable=SC2016
complete_in_bash() { # WORDS...: what is offered for the last one
    bash -u -c \
        'source "$1" && shift && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) &&
            _ruvllm && printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$at/share/bash-completion/completions/ruvllm" "$at/bin/ruvllm" "$@"
}
offers() { # WORD WORDS...
    word=$1
    shift
    complete_in_bash "$@" >"$tmp/offered"
    cat "$tmp/offered"
    grep -qxF -e "$word" "$tmp/offered"
}
offers_no() { # WORD WORDS...
    ! offers "$@"
}
check "bash completes a command" offers tokenize tok
check "bash completes an option of the command" offers --greedy run --gr
check "bash completes an option of every command" offers --threads run model --thr
check "bash completes a command after an option" offers detokenize --threads 2 detok
check "bash completes a value" offers f16 run --kv f1
check "bash completes a pooling" offers mean embed --pooling me
check "bash completes an instruction set" offers avx512 run --isa avx5
check "bash completes a stage" offers top_n_sigma run --samplers top_n
check "bash completes a further stage" offers dry,top_k run --samplers dry,top_k
check "bash completes a name of the catalogue" offers smollm2 run smol
check "bash completes a file" offers $model run tests/gguf/llama-s
check "bash completes an action of learn" offers status learn sta
check "its second word" offers verify learn log ver
check "an option of learn" offers --generation learn export --gen
check "a value of one" offers quality learn merge 1 2 --how q
check "the model of learn" offers smollm2 learn status -m smol
check "bash offers no file for an action" offers_no Makefile learn Make
check "bash offers no option of another command" offers_no --greedy tokenize --
if has zsh; then check "the zsh completion parses" zsh -n "$at/share/zsh/site-functions/_ruvllm"; \
    else skip "zsh is not here"; fi
if has fish; then check "the fish completion parses" fish -n \
    "$at/share/fish/vendor_completions.d/ruvllm.fish"; else skip "fish is not here"; fi

check "make uninstall" make_ uninstall
check "nothing is left" sh -c 'test -z "$(find "$1" ! -type d)"' sh "$root"
echo "1..$n"
