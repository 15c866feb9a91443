#!/bin/sh
# Programs of the suite in a locale with a decimal comma: a small library, loaded first, sets it
# before main. They cover JSON, errors, template numbers, the status of a learner and a
# training run that is published. Prints TAP.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
programs="base/test_json base/test_error base/test_mem template/test_jinja template/test_chat
          learn/test_log learn/test_micro learn/slow_learner_deep api/test_learner api/test_api"
set -- $programs
echo "1..$(($# + 1))"

cat >"$tmp/comma.src" <<'LOCALE'
comment_char %
escape_char /
LC_NUMERIC
decimal_point "<U002C>"
thousands_sep "<U002E>"
grouping 3;3
END LC_NUMERIC
LOCALE
cat >"$tmp/comma.c" <<'CODE'
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void set(void)
{
    char text[8];
    if (!setlocale(LC_NUMERIC, "comma")) abort();
    if (snprintf(text, sizeof text, "%.1f", 0.5) != 3 || text[1] != ',') abort();
}
CODE
if ! command -v localedef >/dev/null; then
    for n in $(seq $(($# + 1))); do echo "ok $n # skip localedef is missing (package locales)"; done
    exit 0
fi
localedef -c -i "$tmp/comma.src" -f UTF-8 "$tmp/comma" >/dev/null 2>&1
if ${CC:-cc} -shared -fPIC -o "$tmp/comma.so" "$tmp/comma.c" \
    && LOCPATH=$tmp LD_PRELOAD=$tmp/comma.so true; then
    echo "ok 1 - a locale with a decimal comma"
else
    echo "not ok 1 - a locale with a decimal comma"
fi
n=1
for program; do
    n=$((n + 1))
    path=build/tests/$program
    if [ ! -x "$path" ]; then
        make --no-print-directory "$path" >"$tmp/log" 2>&1
    fi
    if LOCPATH=$tmp LD_PRELOAD=$tmp/comma.so "$path" >"$tmp/log" 2>&1; then
        echo "ok $n - $program with a decimal comma"
    else
        echo "not ok $n - $program with a decimal comma"
        grep -E 'ERROR|FAILED|LINE' "$tmp/log" | sed 's/^/# /' | head -n 20
    fi
done
