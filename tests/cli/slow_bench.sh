#!/bin/sh
# `bench` and `doctor` as their users meet them. Prints TAP. How fast anything is, is not tested.
set -u
. tests/cli/tap.sh

# holds NAME FILE EXPRESSION: a Python expression over the JSON in FILE, called d
holds() {
    python3 - "$2" "$3" >"$tmp/out" 2>"$tmp/err" <<'PY'
import json, math, statistics, sys
d = json.load(open(sys.argv[1]))
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
    verdict "$1" 0 $? "" ""
}

# --- bench: wrong use
check "bench: help" 0 "parallel N" - "$rv" bench --help
check "bench: no model" 2 - "a model is needed" "$rv" bench
check "bench: nothing to do" 2 - "nothing to measure" "$rv" bench $spm -p 0 -n 0
check "bench: below zero" 2 - "must be 0 to" "$rv" bench $spm -p -1
check "bench: depth below zero" 2 - "must be 0 to" "$rv" bench $spm -d -1
check "bench: no repetition" 2 - "must be 1 to" "$rv" bench $spm -r 0
check "bench: no sequence" 2 - "must be 1 to" "$rv" bench $spm --parallel 0
check "bench: too many sequences" 2 - "must be 1 to" "$rv" bench $spm --parallel 100000
check "bench: not a number" 2 - "must be a whole number" "$rv" bench $spm -p many
check "bench: too many tokens" 2 - "must be 0 to" "$rv" bench $spm -p 999999999
check "bench: two formats" 2 - "one of --json, --csv and --ops" "$rv" bench $spm --json --csv
check "bench: ops" 0 "product q8_0\|product f" - "$rv" bench $spm -p 4 -n 2 -r 1 --ops
check "bench: too many arguments" 2 - "unexpected argument" "$rv" bench $spm $spm
check "bench: no such model" 1 - "ruvllm list" "$rv" bench nosuchmodel
check "bench: KV type" 2 - "q3" "$rv" bench $spm --kv q3

# --- bench: the table
check "bench: the table" 0 "^pp16 .* ± .* ms " - "$rv" bench $spm -p 16 -n 4 -r 2
matches "^tg4 .* ± .* MiB" "$tmp/out"
verdict "bench: its second row" 0 $? "commit" ""
check "bench: -p 0" 0 "^tg4 " - "$rv" bench $spm -p 0 -n 4 -r 1
! grep -q "^pp" "$tmp/out"
verdict "bench: no prompt test" 0 $? "" ""
check "bench: -n 0" 0 "^pp8 " - "$rv" bench $spm -p 8 -n 0 -r 1
! grep -q "^tg" "$tmp/out"
verdict "bench: no decoding test" 0 $? "" ""
check "bench: depth and sequences" 0 "^tg4 x3 @ d40 " - \
    "$rv" bench $spm -p 8 -n 4 -d 40 -r 1 --parallel 3

# --- bench: a service
check "bench: service" 0 "^service x3 .* ms" - \
    "$rv" bench $spm --service -p 20 -n 4 -r 1 --parallel 3
check "bench: other loads" 0 "^second with 40 shared" - \
    "$rv" bench $spm --service -p 20 -n 4 -r 1 --rate 100 --long 50 --shared 40
matches "^open loop 100/s .*ms" "$tmp/out" && matches "^beside a prompt of 50" "$tmp/out" &&
    matches "look-ups took" "$tmp/out"
verdict "bench: all of them" 0 $? "" ""
check "bench: loads need a service" 2 - "need --service" "$rv" bench $spm --rate 2
check "bench: no ops of a service" 2 - "takes no --csv" "$rv" bench $spm --service --ops
check "bench: a service generates" 2 - "above 0" "$rv" bench $spm --service -n 0
"$rv" bench $spm --service -p 9 -n 4 -r 2 --parallel 2 --shared 40 --json >"$tmp/json" 2>"$tmp/e"
verdict "bench: service json" 0 $? "" ""
holds "its loads" "$tmp/json" \
    '[l["name"] for l in d["loads"]] == ["engine x2", "service x2", "prompt of 56", "second with 40 shared"] and d["loads"][1]["requests"] == 4 and d["loads"][1]["tokens_per_second"] > 0 and d["lookup_us"] > 0'

# --- bench: JSON
fields="build_commit build_number cpu_info gpu_info backends model_filename model_type \
model_size model_n_params n_batch n_ubatch n_threads type_k type_v n_prompt n_gen n_depth \
test_time avg_ns stddev_ns avg_ts stddev_ts n_parallel ts_per_sequence ttft_ms gbps peak_rss isa \
n_gpu_layers gpu_copy_gbps gpu_share gpu_memory_used"
"$rv" bench $spm -p 16 -n 4 -d 33 -r 3 --parallel 2 -t 2 --kv f32 --json >"$tmp/json" 2>"$tmp/e"
verdict "bench: json" 0 $? "" ""
holds "two tests" "$tmp/json" \
    'len(d) == 2 and [t["n_prompt"] for t in d] == [16, 0] and [t["n_gen"] for t in d] == [0, 4]'
holds "every field" "$tmp/json" "all(list(t) == '$fields samples_ns samples_ts'.split() for t in d)"
holds "what was asked for" "$tmp/json" \
    'all(t["n_depth"] == 33 and t["n_threads"] == 2 and t["type_k"] == t["type_v"] == "f32" and t["backends"] == "CPU" for t in d)'
holds "the model" "$tmp/json" \
    'all(t["model_size"] > 1000 and t["model_n_params"] > 1000 and t["model_filename"].endswith("llama-spm.gguf") for t in d)'
holds "whole numbers" "$tmp/json" \
    'all(isinstance(t[k], int) for t in d for k in ("avg_ns", "stddev_ns", "build_number", "model_size", "n_threads", "peak_rss"))'
holds "a sample a repetition" "$tmp/json" \
    'all(len(t["samples_ns"]) == len(t["samples_ts"]) == 3 for t in d)'
holds "mean and deviation" "$tmp/json" \
    'all(abs(t["avg_ts"] / statistics.mean(t["samples_ts"]) - 1) < 1e-6 and abs(t["stddev_ts"] - statistics.stdev(t["samples_ts"])) <= 1e-5 * t["avg_ts"] and abs(t["avg_ns"] - statistics.mean(t["samples_ns"])) <= 1 and abs(t["stddev_ns"] - statistics.stdev(t["samples_ns"])) <= 2 for t in d)'
holds "tokens a second" "$tmp/json" \
    'all(abs(s / (1e9 * (t["n_prompt"] + t["n_gen"] * t["n_parallel"]) / ns) - 1) < 1e-4 for t in d for s, ns in zip(t["samples_ts"], t["samples_ns"]))'
holds "sequences" "$tmp/json" \
    'd[0]["n_parallel"] == 1 and d[1]["n_parallel"] == 2 and abs(d[1]["ts_per_sequence"] * 2 / d[1]["avg_ts"] - 1) < 1e-5'
holds "figures of one test only" "$tmp/json" \
    'd[0]["ttft_ms"] > 0 and d[0]["gbps"] is None and d[1]["ttft_ms"] is None and d[1]["gbps"] > 0'
holds "no GPU" "$tmp/json" \
    'all(t["gpu_copy_gbps"] is None and t["gpu_share"] is None and t["gpu_memory_used"] is None for t in d)'
holds "the time" "$tmp/json" \
    '__import__("re").fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", d[0]["test_time"])'
"$rv" bench $spm -p 4 -n 0 -r 1 --isa ref --json >"$tmp/json"
holds "the instruction set" "$tmp/json" 'd[0]["isa"] == "ref"'
holds "one repetition has no deviation" "$tmp/json" \
    'len(d) == 1 and d[0]["stddev_ns"] == 0 and d[0]["stddev_ts"] == 0 and d[0]["type_k"] == "f16"'

# --- bench: CSV
"$rv" bench $spm -p 8 -n 4 -r 2 --csv >"$tmp/csv" 2>"$tmp/e"
verdict "bench: csv" 0 $? "" ""
python3 - "$tmp/csv" "$fields" >"$tmp/out" 2>"$tmp/err" <<'PY'
import csv, sys
rows = list(csv.reader(open(sys.argv[1])))
assert len(rows) == 3, len(rows)
assert rows[0] == sys.argv[2].split(), rows[0]
assert all(len(r) == len(rows[0]) for r in rows)
assert float(dict(zip(rows[0], rows[2]))["avg_ts"]) > 0
PY
verdict "bench: csv columns" 0 $? "" ""
cp $spm "$tmp/a \"b\",c.gguf"
"$rv" bench "$tmp/a \"b\",c.gguf" -p 4 -n 0 -r 1 --csv >"$tmp/csv"
python3 -c \
    'import csv, sys
r = list(csv.reader(open(sys.argv[1])))
sys.exit(len(r[1]) != len(r[0]) or not r[1][5].endswith("a \"b\",c.gguf"))' "$tmp/csv"
verdict "bench: quotes and commas in a name" 0 $? "" ""

# --- doctor
check "doctor: help" 0 "expect" - "$rv" doctor --help
check "doctor: too many arguments" 2 - "unexpected argument" "$rv" doctor $spm $spm
check "doctor: no such model" 1 - "ruvllm list" "$rv" doctor nosuchmodel
check "doctor: unknown instruction set" 2 - "must be ref" "$rv" doctor --isa sse9
check "doctor: for people" 0 "^expected      .* tok/s decoding" - "$rv" doctor $spm -t 1
matches "^advice" "$tmp/out" \
    && matches "^memory  " "$tmp/out" && matches "^q4_k  .* GB/s .* GOP/s" "$tmp/out"
verdict "doctor: machine, rates, advice" 0 $? "" ""
matches "^gpu  " "$tmp/out"
verdict "doctor: the GPU, or that there is none" 0 $? "" ""
"$rv" doctor $spm --json >"$tmp/json" 2>"$tmp/e"
verdict "doctor: json" 0 $? "" ""
holds "doctor: the machine" "$tmp/json" \
    'd["cpu"]["logical"] >= 1 and d["isa"]["in_use"] in d["isa"]["available"] and d["memory"]["total"] > 0 and d["threads"] >= 1'
holds "doctor: the rates" "$tmp/json" \
    'len(d["measured"]["weights"]) > 10 and all(w[k] > 0 for w in d["measured"]["weights"].values() for k in ("gbps_memory", "gbps_cache", "gops_prompt")) and d["measured"]["read_gbps"]["one_thread"] > 0 and d["measured"]["int8"]["gops_all"] > 0 and d["measured"]["call_us"] > 0'
holds "doctor: common models" "$tmp/json" \
    'len(d["expected"]) == 12 and all(e["decode_tps"] > 0 and e["prompt_tps"] > 0 and e["bytes"] > 1e8 for e in d["expected"])'
holds "doctor: this model" "$tmp/json" \
    'd["model"]["decode_tps"] > d["expected"][0]["decode_tps"] and d["model"]["fits"] is True and d["model"]["context"] > 0'
holds "doctor: the GPU" "$tmp/json" \
    'd["gpu_why"].startswith("none is used: ") if d["gpu"] is None else d["gpu"]["measured"]["copy_gbps"] > 0 and d["on_gpu"]["decode_tps"] > 0'
"$rv" doctor --device cpu --json >"$tmp/json" 2>"$tmp/e"
holds "doctor: no GPU is wanted" "$tmp/json" 'd["gpu"] is None and "--device cpu" in d["gpu_why"]'

echo "1..$n"
