#!/bin/sh
# bench/service: what it measures with a tiny model ends up in its file, its picture and its rows.
# Prints TAP. The figures themselves are those of a machine that may be busy.
set -u
. tests/cli/tap.sh

service() {
    bench/service $spm --program "$rv" -p 20 -n 8 -r 1 -t 1 --clients 1,8,16 --long 600 \
        --shared 100 -o "$tmp/s.csv" --svg "$tmp/s.svg"
}
check "a run" 0 "8 requests at once of 20 + 8 tokens .* (bar 0.85)" "16 clients" service
matches "8 streams beside a prompt of 600 tokens .* (bar 1.5)" "$tmp/out" &&
    matches "100 tokens that were read before .* (bar 0.1)" "$tmp/out"
verdict "a row for every bar" 0 $? "" ""
python3 - "$tmp/s.csv" "$tmp/s.svg" <<'PY'
import csv, sys, xml.dom.minidom
rows = list(csv.DictReader(open(sys.argv[1])))
loads = [(r["load"], r["clients"]) for r in rows]
want = [("engine", "8"), ("closed", "8"), ("before", "8"), ("beside", "8"), ("after", "8"),
        ("first", "8"), ("shared", "8")]
for n in ("1", "16"):
    want += [("engine", n), ("closed", n), ("open", n)]
assert loads == want, loads
assert all(float(r["rate"]) > 0 for r in rows if r["load"] == "open")
assert all(float(r["tokens_per_second"]) > 0 for r in rows if r["load"] in ("closed", "open"))
lines = xml.dom.minidom.parse(sys.argv[2]).getElementsByTagName("polyline")
assert len(lines) == 8, len(lines)
PY
verdict "rows and lines" 0 $? "" ""
check "drawn again from the file" 0 "" - bench/service --draw -o "$tmp/s.csv" --svg "$tmp/t.svg"
cmp -s "$tmp/s.svg" "$tmp/t.svg"
verdict "the same picture" 0 $? "" ""
check "no model" 2 - "a model or --draw is needed" bench/service
check "a model that is not there" 1 - "nosuchmodel" bench/service nosuchmodel --program "$rv" \
    -o "$tmp/u.csv" --svg "$tmp/u.svg"
echo "1..$n"
