#!/bin/sh
# The command line as its users meet it: results on standard output, errors on standard error, exit status 0, 1 or 2. Prints TAP.
# RUVLLM names the program (./ruvllm).
set -u
rv=${RUVLLM:-./ruvllm}
spm=tests/gguf/llama-spm.gguf
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

# check NAME STATUS OUT_PATTERN ERR_PATTERN COMMAND...: exit status, and a grep pattern each for standard output and error ("-": must be empty, "": anything)
check() {
    name=$1 want=$2 out=$3 err=$4
    shift 4
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    verdict "$name" "$want" $? "$out" "$err"
}

matches() { # PATTERN FILE
    case $1 in
    '') return 0 ;;
    -) [ ! -s "$2" ] ;;
    *) grep -q -e "$1" "$2" ;;
    esac
}

verdict() {
    n=$((n + 1))
    if [ "$2" = "$3" ] && matches "$4" "$tmp/out" && matches "$5" "$tmp/err"; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        echo "# status $3, wanted $2; wanted in stdout: '$4', in stderr: '$5'"
        sed 's/^/# out: /' "$tmp/out" | head -n 5
        sed 's/^/# err: /' "$tmp/err" | head -n 5
    fi
}

same() { # NAME FILE FILE
    n=$((n + 1))
    if cmp -s "$2" "$3"; then echo "ok $n - $1"; else
        echo "not ok $n - $1"
        diff "$2" "$3" | head -n 6 | sed 's/^/# /'
    fi
}

is_json() { python3 -c 'import json,sys; json.load(open(sys.argv[1]))' "$1"; }

# --- help and wrong use
check "help" 0 "usage: ruvllm" - "$rv" --help
check "command help" 0 "repeat-penalty" - "$rv" run --help
check "version" 0 "^ruvllm [0-9]" - "$rv" --version
check "no command" 2 "" "" "$rv"
check "unknown command" 2 - "unknown command 'dance'" "$rv" dance
check "unknown option" 2 - "unknown option '--frobnicate'" "$rv" run $spm --frobnicate
check "option without value" 2 - "needs a value" "$rv" run $spm --temp
check "bad number" 2 - "not a number" "$rv" run $spm x --temp hot
check "bad whole number" 2 - "not a whole number" "$rv" run $spm x -n 3.5
check "no model given" 2 - "a model is needed" "$rv" run
check "two prompts" 2 - "give one of" "$rv" run $spm x --ids 1
check "global options may come first" 0 "parameters" - "$rv" -t 1 --isa=ref -v info $spm
check "an unknown option before the command" 2 - "unknown option '--frob'" "$rv" --frob info $spm
check "too many arguments" 2 - "unexpected argument" "$rv" run $spm a b

# --- models that are not there or not right
check "model not found says what to do" 1 - "ruvllm list" "$rv" run nosuchmodel hello
check "known model, empty cache" 1 - "'ruvllm pull smollm2' fetches it" "$rv" run smollm2 hello --cache-dir "$tmp/nocache"
check "not a model file" 1 - "ruvllm: " "$rv" info Makefile
check "a directory without a model" 1 - "config.json" "$rv" info docs
head -c 3000 $spm >"$tmp/cut.gguf"
check "truncated file" 1 - "cut.gguf" "$rv" info "$tmp/cut.gguf"
: >"$tmp/empty.gguf"
check "empty file" 1 - "empty" "$rv" info "$tmp/empty.gguf"
check "unknown instruction set" 1 - "instruction set" "$rv" run $spm x --isa sse9
check "unknown KV type" 1 - "neither f32 nor f16" "$rv" run $spm x --kv q3
check "pull of an unknown name" 1 - "no model named" "$rv" pull nothing
check "list" 0 "smollm2" - "$rv" list --cache-dir "$tmp/nocache"

# --- generating
check "ids in, json out" 0 '"finish_reason":"length"' - "$rv" run $spm --ids 1,270,280 --greedy -n 12 --ignore-eos --json
cp "$tmp/out" "$tmp/json" && is_json "$tmp/json"
verdict "json parses" 0 $? "" ""
ids() { sed 's/.*"ids":\[\([0-9,]*\)\],"prompt_ids".*/\1/' "$1"; }
ids "$tmp/json" >"$tmp/a"
for how in "-t 1" "-t 2" "--isa ref" "--ctx 64"; do
    # shellcheck disable=SC2086
    "$rv" run $spm --ids 1,270,280 --greedy -n 12 --ignore-eos --json $how >"$tmp/out"
    ids "$tmp/out" >"$tmp/b"
    same "the same ids with $how" "$tmp/a" "$tmp/b"
done
echo "1 270
280" >"$tmp/ids.txt"
"$rv" run $spm --ids "@$tmp/ids.txt" --greedy -n 12 --ignore-eos --json >"$tmp/out"
ids "$tmp/out" >"$tmp/b"
same "ids from a file" "$tmp/a" "$tmp/b"
"$rv" run $spm "the tea" --seed 7 --temp 1.5 -n 20 --ignore-eos >"$tmp/a"
"$rv" run $spm "the tea" --seed 7 --temp 1.5 -n 20 --ignore-eos >"$tmp/b"
same "the same seed gives the same text" "$tmp/a" "$tmp/b"
check "no new tokens" 0 "" - "$rv" run $spm hello -n 0
check "raw text" 0 "" - "$rv" run $spm hello --raw -n 4 --greedy
check "empty raw text begins with the BOS token" 0 '"prompt_ids":\[1\]' - "$rv" run $spm "" --raw -n 2 --json
check "system and messages" 0 '"text"' - "$rv" run $spm --messages tests/cli/messages.json -s "Be brief." -n 2 --json
check "bad messages" 1 - "list of" "$rv" run $spm --messages tests/golden/llama/config.json -n 2
check "stop string" 0 '"finish_reason":"stop"' - "$rv" run $spm --ids 1,270,280 --greedy -n 60 --ignore-eos --json --stop e --stop a --stop o --stop t
check "prompt longer than the context" 1 - "the context holds 8" "$rv" run $spm --ids 1,2,3,4,5,6,7,8,9 --ctx 8
check "token outside the vocabulary" 1 - "not in the vocabulary" "$rv" run $spm --ids 1,99999
check "ids that are none" 1 - "not a token id" "$rv" run $spm --ids 1,x
check "bad sampling value" 1 - "top-p" "$rv" run $spm hello --top-p 2
check "no tokenizer: ids work" 0 '"text":""' - "$rv" run tests/golden/qwen3 --ids 5,6,7 --greedy -n 3 --json
check "no tokenizer: text is refused" 1 - "no tokenizer" "$rv" run tests/golden/qwen3 hello
printf 'caf\351 \377\376 \360\237' >"$tmp/latin1"
check "invalid UTF-8 in the prompt" 0 '"text"' - "$rv" run $spm "$(cat "$tmp/latin1")" -n 2 --json
check "adapter" 0 '"ids"' - "$rv" run tests/golden/llama --ids 5,6,7 --lora tests/golden/llama/lora:0.5 --greedy -n 3 --json
check "adapter of another model" 1 - "no place in this model" "$rv" run tests/golden/llama --ids 5 --lora tests/golden/phi3/lora -n 1

printf 'hello\n\nand again\n' | "$rv" run $spm -n 3 >"$tmp/out" 2>"$tmp/err"
verdict "lines on standard input are answered one by one" 0 $? "" -
[ "$(wc -l <"$tmp/out")" -ge 2 ]
verdict "an answer a line" 0 $? "" ""
printf 'hello\n' | "$rv" run $spm -n 5 >"$tmp/a" 2>/dev/null
printf 'hello\n' | "$rv" run $spm -n 5 >"$tmp/b" 2>/dev/null
same "and greedily" "$tmp/a" "$tmp/b"

# --- text
check "tokenize" 0 "^[0-9,]*$" - "$rv" tokenize $spm "hello world"
"$rv" tokenize $spm "hello world" >"$tmp/t"
check "detokenize" 0 "^hello world$" - "$rv" detokenize $spm "$(cat "$tmp/t")"
check "tokenize json" 0 '^{"ids":\[[0-9,]*\]}$' - "$rv" tokenize $spm "hello" --json
check "tokenize with BOS" 0 "^1," - "$rv" tokenize $spm --bos hello
check "special token text" 0 "^2$" - "$rv" tokenize $spm "</s>"
check "plain" 0 "," - "$rv" tokenize $spm "</s>" --plain
printf '{"text":"hello"}\n{"text":""}\n{"text":"a\\u0000b"}\n' | "$rv" tokenize $spm --jsonl >"$tmp/out" 2>"$tmp/err"
verdict "jsonl" 0 $? '^{"ids":\[\]}$' -
printf '{"txt":1}\n' | "$rv" tokenize $spm --jsonl >"$tmp/out" 2>"$tmp/err"
verdict "bad jsonl line is named" 1 $? - "input line 1"
printf 'hello world' | "$rv" tokenize $spm - >"$tmp/b"
same "tokenize standard input" "$tmp/t" "$tmp/b"
check "bad ids" 1 - "not a token id" "$rv" detokenize $spm 1,two

# --- templates
cat >"$tmp/t.jinja" <<'END'
{% for m in messages %}[{{ m.role }}]{{ m.content|trim }}
{% endfor %}{{ strftime_now('%Y') }}{{ extra }}
END
echo '{"messages":[{"role":"user","content":" hi "}],"extra":"!"}' >"$tmp/c.json"
check "template file" 0 '^2031!' - "$rv" template "$tmp/t.jinja" "$tmp/c.json" --now 2031-02-03
check "template json" 0 '^{"text":"\[user\]hi' - "$rv" template "$tmp/t.jinja" "$tmp/c.json" --json
check "bad date" 1 - "not a date" "$rv" template "$tmp/t.jinja" "$tmp/c.json" --now tomorrow
echo "{{ raise_exception('only with tea') }}" >"$tmp/raise.jinja"
check "a template that raises: its message" 1 - "only with tea" "$rv" template "$tmp/raise.jinja" "$tmp/c.json"
echo "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" >"$tmp/loop.jinja"
check "a template that never ends" 1 - "ruvllm: " timeout 20 "$rv" template "$tmp/loop.jinja" "$tmp/c.json"
echo "{% if %}" >"$tmp/syntax.jinja"
check "a template with an error in it" 1 - "line 1" "$rv" template "$tmp/syntax.jinja" "$tmp/c.json"
echo '{"messages":' >"$tmp/cut.json"
check "a conversation that is no JSON" 1 - "line 2" "$rv" template "$tmp/t.jinja" "$tmp/cut.json"
check "a model's own or family template" 0 "hi" - "$rv" template tests/gguf/llama.gguf "$tmp/c.json"

# --- looking inside
check "info" 0 "parameters" - "$rv" info $spm
check "info json" 0 '"parameters":' - "$rv" info $spm --tensors --json
cp "$tmp/out" "$tmp/info" && is_json "$tmp/info"
verdict "info json parses" 0 $? "" ""
python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
total = 0
for t in d["tensors"]:
    n = 1
    for s in t["shape"]: n *= s
    total += n
sys.exit(total != d["parameters"])' "$tmp/info"
verdict "the parameter count is the sum of the tensors" 0 $? "" ""
check "tap" 0 - - "$rv" tap tests/golden/llama --ids 5,6,7 --exact -o "$tmp/o.safetensors"
head -c 4000 "$tmp/o.safetensors" | grep -q '"hidden.2"'
verdict "tap wrote hidden states" 0 $? "" ""
check "tap by name" 0 - - "$rv" tap tests/golden/gemma2 --ids 5,6 --tap q.0,ffn_post_norm.1 -o "$tmp/o.safetensors"
check "unknown tap" 1 - "no tap named 'q.9'" "$rv" tap tests/golden/llama --ids 5 --tap q.9 -o "$tmp/o.safetensors"
check "tap onto a full disk" 1 - "ruvllm: " "$rv" tap tests/golden/llama --ids 5 -o /dev/full
check "perplexity of too short a text" 1 - "fewer than one window" "$rv" perplexity $spm "$tmp/c.json"
check "perplexity" 0 '^{"ppl":[0-9.]*,' "" "$rv" perplexity $spm tests/golden/README.md --ctx 64 --json
"$rv" info $spm >/dev/full 2>"$tmp/err"
verdict "a full disk behind standard output" 1 $? "" "cannot write"

echo "1..$n"
