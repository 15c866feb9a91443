#!/bin/sh
# bench/versus and bench/plot: that what they print and draw follows from what the programs printed.
# Prints TAP.
# The peers here are scripts that print what llama-bench prints, with figures that the test knows.
set -u
. tests/cli/tap.sh
if ! command -v python3 >/dev/null 2>&1; then
    echo "1..0 # SKIP no python3"
    exit 0
fi
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

# stand_in PATH FIGURE...: a program that prints the results of llama-bench, llama-batched-bench or
# `ruvllm bench` for the
# arguments it is given. Its rates are the figures in turn; what is asked of it with one token of
# answer (what it was
# built from) takes none of them.
stand_in() {
    path=$1
    shift
    mkdir -p "$(dirname "$path")"
    echo "$*" >"$path.figures"
    cat >"$path" <<'PY'
#!/usr/bin/env python3
import json, os, sys, time
args = sys.argv[1:]
def value(*names):
    return next((int(args[args.index(n) + 1]) for n in names if n in args), 0)
n_gen, ts = value("-n"), 7.0
with open(sys.argv[0] + ".environment", "w") as f:
    f.write(os.environ.get("LD_LIBRARY_PATH", ""))
if n_gen != 1:
    rest = open(sys.argv[0] + ".figures").read().split()
    with open(sys.argv[0] + ".figures", "w") as f:
        f.write(" ".join(rest[1:]))
    if rest[0] == "signal":
        print("no such instruction", file=sys.stderr, flush=True)
        os.kill(os.getpid(), 4)
    if rest[0] == "hang":
        time.sleep(60)
    if rest[0] == "exit":
        print("unknown argument", file=sys.stderr)
        sys.exit(3)
    ts = float(rest[0])
if "-npl" in args:
    print(json.dumps({"pp": value("-npp"), "tg": value("-ntg"), "pl": value("-npl"),
                      "speed_tg": ts}))
else:
    print(json.dumps([{"build_commit": "abc123", "build_number": 42,
                       "cpu_info": "some \"CPU\" & more", "isa": "ref",
                       "backends": "CUDA" if "--device" in args else "CPU",
                       "gpu_info": "some card" if "--device" in args else "",
                       "model_type": "tiny <model>", "n_prompt": value("-p"), "n_gen": n_gen,
                       "n_depth": value("-d"),
                       "avg_ts": ts, "gbps": ts / 1000}]))
PY
    chmod +x "$path"
}

# rows NAME FILE EXPRESSION: a Python expression over the rows of a CSV file, called d; close(text,
# number) to 5 digits
rows() {
    python3 - "$2" "$3" >"$tmp/out" 2>"$tmp/err" <<'PY'
import csv, json, os, statistics, sys
d = list(csv.DictReader(open(sys.argv[1], newline="")))
def close(text, number):
    return abs(float(text) - number) <= 1e-5 * abs(number)
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
    verdict "$1" 0 $? "" ""
}

# --- wrong use
check "versus: help" 0 "bandwidth" - bench/versus --help
check "versus: no peer" 2 - "peer is needed" bench/versus $spm -o "$tmp/none"
check "versus: no such test" 2 - "is no test" bench/versus --peer x/y --test pp0 $spm -o "$tmp/none"
check "versus: two peers of one name" 2 - "names of their own" bench/versus --peer x/y --peer x/y \
    $spm -o "$tmp/none"
check "versus: no round" 2 - "above 0" bench/versus --peer x/y --rounds 0 $spm -o "$tmp/none"
check "versus: bandwidth alone" 2 - "goes with" bench/versus --peer x/y --test start,bandwidth \
    $spm -o "$tmp/none"
echo "other,columns" >"$tmp/other"
check "versus: CPU time of a start" 2 - "goes with ppN" bench/versus --peer x/y --cpu-time --test \
    start $spm -o "$tmp/none"
check "versus: a file that is not its own" 2 - "other columns" bench/versus --peer x/y $spm -o \
    "$tmp/other"

# --- medians, the better peer, the ratio. ours: median 75; a: 20; b: 25, so b counts
stand_in "$tmp/ours/ruvllm" 50 100 75
stand_in "$tmp/a/llama-bench" 10 20 30
stand_in "$tmp/b/llama-bench" 40 25 5
check "versus: runs" 0 "^tiny.gguf  *tg8  *75.0  *25.0 tok/s  *3.00  1.25 .. 15.00 " - \
    bench/versus -t 1 --rounds 3 \
    --ours "$tmp/ours/ruvllm" --peer "$tmp/a/llama-bench" --peer "/some/libs:$tmp/b" --test tg8 -o \
    "$tmp/csv" "$tmp/tiny.gguf"
cp "$tmp/out" "$tmp/table"
rows "one row" "$tmp/csv" \
    'len(d) == 1 and d[0]["file"] == "tiny.gguf" and d[0]["test"] == "tg8" and d[0]["status"] == "ok"'
rows "medians and ratio" "$tmp/csv" \
    'close(d[0]["ours"], 75) and close(d[0]["peer"], 25) and close(d[0]["ratio"], 3)'
rows "the better peer" "$tmp/csv" 'd[0]["peer_name"] == "b" and d[0]["peer_build"] == "b42 abc123"'
rows "the interval" "$tmp/csv" 'close(d[0]["low"], 50 / 40) and close(d[0]["high"], 75 / 5)'
rows "all samples" "$tmp/csv" \
    'json.loads(d[0]["samples"]) == {"ours": [50, 100, 75], "a": [10, 20, 30], "b": [40, 25, 5]}'
rows "what it ran on" "$tmp/csv" \
    'd[0]["cpu"] == "some \"CPU\" & more" and d[0]["commit"] == "abc123" and d[0]["threads"] == "1" and d[0]["isa_used"] == "ref"'
rows "weights read" "$tmp/csv" 'close(d[0]["gbps_ours"], 0.075) and close(d[0]["gbps_peer"], 0.025)'
rows "what others did" "$tmp/csv" '(d[0]["others"] != "") == os.path.exists("/proc/stat")'
rows "peak memory" "$tmp/csv" 'int(d[0]["rss_ours"]) > 1 << 20 and int(d[0]["rss_peer"]) > 1 << 20'
[ "$(cat "$tmp/b/llama-bench.environment")" = /some/libs ] \
    && [ "$(cat "$tmp/a/llama-bench.environment")" != /some/libs ]
verdict "a peer's own libraries" 0 $? "" ""
grep -q "LD_LIBRARY_PATH=/some/libs .*llama-bench -m .*tiny.gguf -p 0 -n 8 -d 0 -t 1" "$tmp/table"
verdict "the exact command" 0 $? "" ""

# --- options that reach both
stand_in "$tmp/ours/ruvllm" 10 30
stand_in "$tmp/a/llama-bench" 20
stand_in "$tmp/a/llama-batched-bench" 60
check "versus: depth, sequences, KV" 0 \
    "llama-batched-bench .* -npp 128 -ntg 64 -npl 3 .* -ctk q8_0 -ctv q8_0 -fa 1" - bench/versus \
    -t 1 --rounds 1 --kv q8 --isa avx2 --ours "$tmp/ours/ruvllm" --peer "$tmp/a/llama-bench" \
    --test pp8@d16,batch3 -o "$tmp/csv" "$tmp/tiny.gguf"
matches "ruvllm bench .* -p 0 -n 64 -d 128 --parallel 3 -t 1 --isa avx2 --kv q8 " "$tmp/out"
verdict "options of ours" 0 $? "" ""
rows "appended" "$tmp/csv" \
    '[r["test"] for r in d] == ["tg8", "pp8@d16", "batch3"] and all(close(r["ratio"], 0.5) for r in d[1:]) and d[1]["gbps_ours"] == ""'

# --- on a GPU: options, and what the row says of the card
stand_in "$tmp/ours/ruvllm" 60
stand_in "$tmp/a/llama-bench" 20
mkdir -p "$tmp/smi"
cat >"$tmp/smi/nvidia-smi" <<'SH'
#!/bin/sh
case "$*" in
*driver_version*-i\ 1) echo "580.1.2" ;;
*clocks.sm,clocks.mem,utilization.gpu*-i\ 1) echo "1980, 3201, 90" ;;
*) exit 1 ;;
esac
SH
chmod +x "$tmp/smi/nvidia-smi"
check "versus: on a GPU" 0 \
    "llama-bench -m .* -p 0 -n 8 -d 0 -t 1 -ngl 99 -sm none -mg 1 -fa 1 -r 1" - \
    env PATH="$tmp/smi:$PATH" bench/versus -t 1 --rounds 1 --device cuda:1 --ours \
    "$tmp/ours/ruvllm" --peer "$tmp/a" --test tg8 -o "$tmp/gpu" "$tmp/tiny.gguf"
matches "ruvllm bench .* -p 0 -n 8 -d 0 -t 1 --device cuda:1 --kv f16 " "$tmp/out"
verdict "on a GPU: options of ours" 0 $? "" ""
rows "on a GPU: the row" "$tmp/gpu" \
    'd[0]["gpu"] == "some card" and d[0]["driver"] == "580.1.2" and d[0]["clocks"] == "1980/3201" and d[0]["isa"] == "cuda:1" and close(d[0]["ratio"], 3)'
check "versus: no such device" 2 - "cuda or cuda:N" bench/versus --peer x/y --device gpu $spm -o \
    "$tmp/none"
check "versus: CPU time on a GPU" 2 - "takes no --cpu-time" bench/versus --peer x/y --device cuda \
    --cpu-time --test pp8 $spm -o "$tmp/none"

# --- seconds: less is faster
stand_in "$tmp/ours/ruvllm"
stand_in "$tmp/a/llama-bench"
check "versus: start" 0 "^tiny.gguf  *start .* s " - bench/versus -t 1 --rounds 3 --ours \
    "$tmp/ours/ruvllm" --peer "$tmp/a" --test start -o "$tmp/start" "$tmp/tiny.gguf"
rows "seconds" "$tmp/start" \
    'all(d[0]["unit"] == "s" and close(d[0]["ratio"], statistics.median(s["a"]) / statistics.median(s["ours"])) for s in [json.loads(d[0]["samples"])])'

# --- programs that fail are named; the row says that it is missing
stand_in "$tmp/ours/ruvllm" 10 10 10 10 10
stand_in "$tmp/a/llama-bench" 20 signal
stand_in "$tmp/b/llama-bench" 5 5 exit
check "versus: one of two peers fails" 1 "a: killed by SIGILL: no such instruction" \
    "a: killed by SIGILL" bench/versus -t 1 --rounds 2 \
    --ours "$tmp/ours/ruvllm" --peer "$tmp/a" --peer "$tmp/b" --test pp8,tg8 -o "$tmp/bad" \
    "$tmp/tiny.gguf"
rows "the other counts" "$tmp/bad" \
    'd[0]["status"] == "ok" and d[0]["peer_name"] == "b" and close(d[0]["ratio"], 2) and "SIGILL" in d[0]["note"]'
rows "none is left" "$tmp/bad" \
    'd[1]["status"] == "missing" and d[1]["ratio"] == "" and "b: exit status 3: unknown argument" in d[1]["note"]'
check "versus: no such program" 1 "missing" "cannot be started" bench/versus -t 1 --rounds 1 \
    --ours "$tmp/ours/ruvllm" --peer "$tmp/c/llama-bench" --test start -o "$tmp/bad" \
    "$tmp/tiny.gguf"
check "versus: no such model" 1 "missing" "ours: exit status" bench/versus -t 1 --rounds 1 --ours \
    "$rv" --peer "$tmp/a" --test start -o "$tmp/bad" "$tmp/nosuch.gguf"
stand_in "$tmp/a/llama-bench" hang
# so many seconds that no other program takes them on a busy machine
check "versus: a program that hangs" 1 "missing" "a: stopped after 20 s" bench/versus -t 1 \
    --rounds 1 --timeout 20 --ours "$tmp/ours/ruvllm" --peer "$tmp/a" --test pp8 -o "$tmp/bad" \
    "$tmp/tiny.gguf"
rows "every row is there" "$tmp/bad" '[r["status"] for r in d] == ["ok"] + 4 * ["missing"]'

# --- a sample that others disturbed is taken again: others use 1 core, then half a core, then
# nothing
python3 - >"$tmp/out" 2>"$tmp/err" <<'PY'
import importlib.machinery, importlib.util, types
loader = importlib.machinery.SourceFileLoader("versus", "bench/versus")
versus = importlib.util.module_from_spec(importlib.util.spec_from_loader("versus", loader))
loader.exec_module(versus)
versus.time = types.SimpleNamespace(sleep=lambda _: None)
def taken(limit, kind="tg8"):
    samples = iter([(1, 4.0), (2, 2.0), (3, 0.0)])
    def take():
        value, others = next(samples)
        return value, types.SimpleNamespace(others=others, seconds=4.0)
    return versus.undisturbed(types.SimpleNamespace(max_others=limit), versus.Test(kind), take)[0]
got = [taken(float("inf")), taken(2), taken(0.7), taken(0.1), taken(0.1, "busy")]
assert got == [1, 1, 2, 3, 1]
PY
verdict "versus: a disturbed sample is taken again" 0 $? "" ""

# --- with the program itself
stand_in "$tmp/a/llama-bench" 100 300 200 10 30 20
stand_in "$tmp/a/llama-batched-bench" 1000 3000 2000
check "versus: ruvllm" 0 "^llama-spm.gguf  *busy " - bench/versus -t 1 --rounds 3 --ours \
    "$rv" --peer "$tmp/a" \
    --test pp16,tg4@d8,batch2,start,busy -o "$tmp/real" $spm
rows "its ratios follow from its samples" "$tmp/real" \
    'all(close(r["ours"], statistics.median(s["ours"])) and close(r["ratio"], statistics.median(s["ours"]) / statistics.median(s["a"])) and float(r["low"]) <= float(r["ratio"]) <= float(r["high"]) for r in d[:3] for s in [json.loads(r["samples"])])'
rows "its rows" "$tmp/real" \
    '[r["test"] for r in d] == ["pp16", "tg4@d8", "batch2", "start", "busy"] and all(len(s) == 3 for r in d for s in json.loads(r["samples"]).values()) and [float(r["peer"]) for r in d[:3]] == [200, 20, 2000] and all(r["commit"] and r["isa_used"] for r in d)'
rows "share kept beside a busy core" "$tmp/real" \
    'close(d[4]["ratio"], statistics.median(s["ours"]) / statistics.median(s["ours, quiet"])) if (s := json.loads(d[4]["samples"])) else False'

# --- the picture. The later of two rows for one test counts; missing rows are drawn as missing
stand_in "$tmp/ours/ruvllm" 30 5
stand_in "$tmp/a/llama-bench" 20 20 20
bench/versus -t 1 --rounds 1 --ours "$tmp/ours/ruvllm" --peer "$tmp/a" --test tg8,pp8 -o \
    "$tmp/csv" "$tmp/tiny.gguf" >"$tmp/out" 2>"$tmp/err"
cat "$tmp/bad" | tail -n +3 | head -n 1 >>"$tmp/csv"
check "plot: runs" 0 "4 rows" - bench/plot "$tmp/csv" -o "$tmp/svg"
python3 - "$tmp/svg" >"$tmp/out" 2>"$tmp/err" <<'PY'
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
ns = "{http://www.w3.org/2000/svg}"
assert root.tag == ns + "svg"
words = [t.text or "" for t in root.iter(ns + "text")]
classes = [r.get("class") for r in root.iter(ns + "rect")]
bars = {r.find(ns + "title").text.split(":")[0]: r for r in root.iter(ns + "rect")
        if r.find(ns + "title") is not None}
print(words, list(bars))
assert 'some "CPU" & more' in " ".join(words)
assert "abc123" in " ".join(words) and "tiny <model>" in words
# tg8 measured anew gave no figure: the older one does not count
assert "1.50\u00d7" not in words and "missing" in words
assert "0.25\u00d7" in words and words.count("0.50\u00d7") == 2
one = next(float(l.get("x1")) for l in root.iter(ns + "line") if l.get("class") == "one")
quarter, half = bars["tiny.gguf pp8"], bars["tiny.gguf batch3"]
for bar in (quarter, half):  # slower: from the ratio up to the line at 1
    assert bar.get("class") == "slower"
    assert abs(float(bar.get("x")) + float(bar.get("width")) - one) < 0.2
assert abs(float(quarter.get("width")) / float(half.get("width")) - 2) < 0.02
assert len([p for p in root.iter(ns + "path") if p.get("class") == "whisker"]) == len(bars)
PY
verdict "plot: the picture" 0 $? "" ""
check "plot: nothing to draw" 1 - "nothing to draw" bench/plot "$tmp/csv" --cpu nosuch -o \
    "$tmp/svg2"
check "plot: nothing ran on a GPU" 1 - "nothing to draw" bench/plot "$tmp/csv" --gpu -o "$tmp/svg2"
sed '2s/,[^,]*,[^,]*,[^,]*$/,Some GPU,1.2,3\/4/' "$tmp/csv" >"$tmp/csv2"
check "plot: what ran on one" 0 "1 rows" - bench/plot "$tmp/csv2" --gpu -o "$tmp/svg2"
grep -q "Some GPU" "$tmp/svg2"
verdict "plot: which names it" 0 $? "" ""

echo "1..$n"
