#!/bin/sh
# The command line as its users meet it: results on standard output, errors on standard error, exit
# status 0, 1 or 2. Prints TAP.
set -u
. tests/cli/tap.sh
# Nothing here is recognised by meaning: without models in the cache a program that has a state
# starts in a tenth of the time.
RUVLLM_CACHE_DIR=$tmp/no-models
export RUVLLM_CACHE_DIR

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
check "chat help" 0 "no-history" - "$rv" chat --help
check "embed help" 0 "pooling" - "$rv" embed --help
check "version" 0 "^ruvllm [0-9]" - "$rv" --version
check "no command" 2 "" "" "$rv"
check "unknown command" 2 - "unknown command 'dance'" "$rv" dance
check "unknown option" 2 - "unknown option '--frobnicate'" "$rv" run $spm --frobnicate
check "option without value" 2 - "needs a value" "$rv" run $spm --temp
check "bad number" 2 - "--temp must be a number (got 'hot')" "$rv" run $spm x --temp hot
check "bad whole number" 2 - "must be a whole number" "$rv" run $spm x -n 3.5
check "no model given" 2 - "a model is needed" "$rv" run
check "two prompts" 2 - "give one of" "$rv" run $spm x --ids 1
check "global options may come first" 0 "parameters" - "$rv" -t 1 --isa=ref -v info $spm
check "an unknown option before the command" 2 - "unknown option '--frob'" "$rv" --frob info $spm
check "too many arguments" 2 - "unexpected argument" "$rv" run $spm a b

# --- models that are not there or not right
check "model not found says what to do" 1 - "ruvllm list" "$rv" run nosuchmodel hello
check "known model, empty cache" 1 - "'ruvllm pull smollm2' downloads it" \
    "$rv" run smollm2 hello --cache-dir "$tmp/nocache"
check "not a model file" 1 - "ruvllm: " "$rv" info Makefile
check "a directory without a model" 1 - "docs: a directory without a model" "$rv" info docs
check "a state directory that is a file" 0 "" "Makefile: not a directory" \
    "$rv" run $spm hello -n 2 --state-dir Makefile
head -c 3000 $spm >"$tmp/cut.gguf"
check "truncated file" 1 - "cut.gguf" "$rv" info "$tmp/cut.gguf"
: >"$tmp/empty.gguf"
check "empty file" 1 - "empty" "$rv" info "$tmp/empty.gguf"
check "unknown instruction set" 2 - "--isa must be ref" "$rv" run $spm x --isa sse9
check "unknown KV type" 2 - \
    "--kv must be f32, f16, q8, warm or tiered (got 'q3')" "$rv" run $spm x --kv q3
phi=tests/gguf/phi3-partial.gguf
check "memory: the context gives way" 0 "" "the context has 256 tokens: --memory 1900K" \
    "$rv" run $phi --raw hi -n 1 --greedy --no-learn --memory 1900K
check "memory: all of it fits" 0 "" - "$rv" run $phi --raw hi -n 1 --greedy --no-learn --memory 64M
check "memory: one that was asked for does not" 1 - "context of 2048 tokens takes .*allows 1900K" \
    "$rv" run $phi --raw hi -n 1 --greedy --no-learn --memory 1900K --ctx 2048
check "memory: nothing fits" 1 - "context of 256 tokens takes" \
    "$rv" run $phi --raw hi -n 1 --greedy --no-learn --memory 1K
check "memory: a server refuses a model" 1 - "MB, and the budget has" \
    "$rv" serve $spm --port 0 --no-learning --memory 100K
check "pull of an unknown name" 1 - "no model named" "$rv" pull nothing
check "list" 0 "smollm2" - "$rv" list --cache-dir "$tmp/nocache"

# --- what computes, and why
explain() { # NAME LINE OPTION...: instead of an answer
    label=$1 line=$2
    shift 2
    check "explain: $label" 0 "$line" - "$rv" run $spm --explain-backend --no-learn "$@"
}
explain "the device" '^device        cpu: the default; device auto takes a GPU'
explain "a device that was asked for" '^device        cpu: asked for$' --device cpu
explain "the instruction set" '^instructions  ref: asked for; this CPU has ref' --isa ref
explain "the instruction set it has" '^instructions  .*: the highest of this CPU; this CPU has ref'
explain "threads" '^threads       3: asked for' -t 3
explain "the kind of model" '^model         llama, decoder: it predicts tokens, each'
explain "packed weights" '^weights       .*, packed: '
explain "weights as they are" '^weights       .*, as in the file: no-pack: ' --no-pack
explain "f32 all through" '^weights       .*, as in the file: exact: ' --exact
explain "exact activations" '^activations   f32: exact$' --exact
explain "exact KV cache" '^kv_cache      f32, .* KiB a token: exact$' --exact
explain "KV cache" '^kv_cache      q8, .* KiB a token: asked for$' --kv q8
explain "context" '^context       96 tokens, 3 pages of 32, .* MiB: asked for' --ctx 96
explain "context that the model was made for" '^context       .*: what the model was made for'
explain "guesses" '^guessing      by repetition: the default; '
explain "no guesses" '^guessing      off: asked for$' --draft off
explain "nothing learned" '^learning      off: --no-learn$'
check "explain: a context that gave way" 0 '^context       256 .*: --memory 1900K has no room' "" \
    "$rv" run $phi --explain-backend --no-learn --memory 1900K
check "explain: a model of embeddings" 0 '^model         bert, encoder: it makes embeddings' - \
    "$rv" run tests/gguf/bert.gguf --explain-backend
! matches '^\(kv_cache\|guessing\|learning\)' "$tmp/out"
verdict "explain: which has no cache and no answers" 0 $? "" ""
check "explain: chat" 0 '^learning      off: nothing was taught to this model as .default' - \
    "$rv" chat $spm --explain-backend
check "an answer that is cut by nobody's limit" 0 "" \
    "^ruvllm: cut at 256 tokens; -n N allows more$" "$rv" run $spm hi --ignore-eos --no-learn
check "by one that was given" 0 "" - "$rv" run $spm hi --ignore-eos --no-learn -n 256
check "by the context" 0 "" "^ruvllm: cut at .*, where the context is full; --ctx N" \
    "$rv" run $spm hi --ignore-eos --no-learn -n 256 --ctx 32
printf 'hi\n/clear\nhi\n' |
    "$rv" chat $spm --ignore-eos --no-learn --ctx 2048 >"$tmp/out" 2>"$tmp/err"
[ "$(grep -c "^(cut at 512 tokens; -n N allows more)$" "$tmp/err")" = 1 ]
verdict "in the chat of a pipe it is said once" 0 $? "" ""
"$rv" run $spm hi -n 3 --seed 1 --no-learn >"$tmp/plain" 2>/dev/null </dev/null
check "explain: before an answer" 0 "" '^device        cpu: ' \
    "$rv" run $spm hi -n 3 --seed 1 --no-learn --explain-backend
same "explain: which is the same" "$tmp/plain" "$tmp/out"
explained() { # NAME CONDITION on d, the JSON in $tmp/out
    python3 -c "import json,sys; d=json.load(open(sys.argv[1])); assert $2, d" "$tmp/out" \
        2>"$tmp/err"
    verdict "$1" 0 $? "" -
}
"$rv" run $spm --explain-backend --no-learn --ctx 64 --json >"$tmp/out"
explained "explain: JSON" 'd["backend"]["context"]["why"].startswith("asked for") and len(d) == 1'
"$rv" run $spm hi -n 1 --explain-backend --no-learn --json >"$tmp/out" </dev/null
explained "explain: JSON with an answer" 'd["backend"]["device"]["is"] == "cpu" and len(d["ids"])'

# --- answers of a form
check "one of the choices" 0 '^\(up\|down\)$' - "$rv" run $spm x --choices up,down --seed 3
check "choices as a list" 0 '^a,b$' - "$rv" run $spm x --choices '["a,b"]'
check "a regular expression" 0 '^[ab]\{4\}-9$' - "$rv" run $spm x --regex '[ab]{4}-9' --temp 2
echo '{"enum":[[1,2],{"k":null}]}' >"$tmp/schema"
check "a schema" 0 '"text":".*\(1\|k\)' - "$rv" run $spm x --schema "$tmp/schema" --json --seed 1
echo 'root ::= "yes" | "no" "!"' >"$tmp/gbnf"
check "a grammar" 0 '^\(yes\|no!\)$' - "$rv" run $spm x --grammar "$tmp/gbnf"
echo 'start: "yes" | "no" MARK
MARK: /[!?]/' >"$tmp/answer.lark"
check "a grammar of Lark" 0 '^\(yes\|no[!?]\)$' - "$rv" run $spm x --grammar "$tmp/answer.lark"
check "a schema in the command line" 0 7 - "$rv" run $spm x --schema '{"const":7}'
check "a grammar in the command line" 0 '^yes$' - "$rv" run $spm x --grammar 'root ::= "yes"'
check "what takes too much work" 1 - "#/pattern: .*too much work" \
    "$rv" run $spm x --schema '{"type":"string","pattern":"^(.{0,100}a.{0,100}b){10}$"}'
{ echo 'root ::= p0' # a text may end behind each of 40 rules in two ways
  for i in $(seq 0 39); do echo "p$i ::= \"a\"* p$((i + 1)) | \"b\"* p$((i + 1))"; done
  echo 'p40 ::= "z" root | "z"'; } >"$tmp/ends"
check "rules that end in too many ways" 1 - "too much work" "$rv" run $spm x --grammar "$tmp/ends"
{ echo 'root ::= a0 | "x"'
  for i in $(seq 0 59); do echo "a$i ::= a$((i + 1)) | a$((i + 1))"; done
  echo 'a60 ::= [] root'; } >"$tmp/begins"
check "rules that begin in too many ways" 1 - "too much work" \
    "$rv" run $spm x --grammar "$tmp/begins"
check "a JSON object" 0 '}$' - "$rv" run $spm x --json-mode -n 30 --seed 5
check "retries: any text is right" 0 . - \
    "$rv" run $spm x --regex '(.|\s)*' --retries 2 -n 4 --seed 1
check "retries: none is right" 1 - "no answer of 3 was right: .*form that is asked for" \
    "$rv" run $spm x --choices nothing,else --retries 2 -n 4 --seed 1
check "retries: what was wrong is told" 1 - "^answer 1: The answer does not have the form" \
    "$rv" run $spm x --choices nothing --retries 1 -n 4 --seed 1 -v
check "retries without anything to check" 2 - "--retries needs something to check" \
    "$rv" run $spm x --retries 1
check "retries without a conversation" 2 - "--retries needs a conversation" \
    "$rv" run $spm x --raw --choices a --retries 1
check "two forms" 2 - "give one of --schema" "$rv" run $spm x --regex a --json-mode
echo '{"properties":{"a":{"uniqueItems":true}}}' >"$tmp/schema"
check "what cannot be enforced is named" 1 - "#/properties/a/uniqueItems" \
    "$rv" run $spm x --schema "$tmp/schema"
check "a schema that is not there" 1 - "nosuchfile" "$rv" run $spm x --schema nosuchfile

# --- generating
check "ids in, json out" 0 '"finish_reason":"length"' - \
    "$rv" run $spm --ids 1,270,280 --greedy -n 12 --ignore-eos --json
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
check "empty raw text begins with the BOS token" 0 '"prompt_ids":\[1\]' - \
    "$rv" run $spm "" --raw -n 2 --json
check "system and messages" 0 '"text"' - \
    "$rv" run $spm --messages tests/cli/messages.json -s "Be brief." -n 2 --json
check "bad messages" 1 - "list of" "$rv" run $spm --messages tests/golden/llama/config.json -n 2
check "stop string" 0 '"finish_reason":"stop"' - "$rv" run $spm --ids 1,270,280 --greedy -n 60 \
    --ignore-eos --json --stop e --stop a --stop o --stop t
check "prompt longer than the context" 1 - "the context holds 8" \
    "$rv" run $spm --ids 1,2,3,4,5,6,7,8,9 --ctx 8
check "token outside the vocabulary" 1 - "not in the vocabulary" "$rv" run $spm --ids 1,99999
check "ids that are none" 2 - "a token id must be .*(got 'x')" "$rv" run $spm --ids 1,x
check "bad sampling value" 2 - "--top-p must be above 0 and at most 1 (got 2)" \
    "$rv" run $spm hello --top-p 2
check "no tokenizer: ids work" 0 '"text":""' - \
    "$rv" run tests/golden/qwen3 --ids 5,6,7 --greedy -n 3 --json
check "no tokenizer: text is refused" 1 - "no tokenizer" "$rv" run tests/golden/qwen3 hello
printf 'caf\351 \377\376 \360\237' >"$tmp/latin1"
check "invalid UTF-8 in the prompt" 0 '"text"' - "$rv" run $spm "$(cat "$tmp/latin1")" -n 2 --json
check "adapter" 0 '"ids"' "does not say which model" \
    "$rv" run tests/golden/llama --ids 5,6,7 --lora tests/golden/llama/lora:0.5 --greedy -n 3 --json
check "adapter of another model" 1 - "does not belong to this model" \
    "$rv" run tests/golden/llama --ids 5 --lora tests/golden/phi3/lora -n 1

echo '{"messages":[{"role":"user","content":"hello"}],"tools":null}' >"$tmp/object.json"
check "messages as an object" 0 '"text"' - "$rv" run $spm --messages "$tmp/object.json" -n 2 --json
echo '[{"content":"hello"}]' >"$tmp/noroles.json"
check "messages without a role" 1 - 'message 0 is not an object with a string "role"' \
    "$rv" run $spm --messages "$tmp/noroles.json"

# --- choosing tokens
greedy="--ids 1,270,280 --greedy --ignore-eos --json -n 4"
# shellcheck disable=SC2086
"$rv" run $spm $greedy >"$tmp/out"
ids "$tmp/out" >"$tmp/a"
for how in "--temp 0" "--top-k 1 --temp 2" "--top-p 0.000001 --temp 2" "--min-p 1 --temp 2" \
    "--samplers temperature,top_k --temp 1 --top-k 1"; do
    # shellcheck disable=SC2086
    "$rv" run $spm --ids 1,270,280 --ignore-eos --json -n 4 --repeat-penalty 1 $how >"$tmp/out" \
        2>"$tmp/err"
    ids "$tmp/out" >"$tmp/b"
    same "the most likely token each time by $how" "$tmp/a" "$tmp/b"
done
for how in "--typical-p 0.5" "--top-n-sigma 1" "--xtc-probability 0.5 --xtc-threshold 0.05" \
    "--dry-multiplier 0.8 --dry-base 1.5 --dry-allowed-length 1 --dry-window 32 --dry-breaker x \
        --dry-breaker y" \
    "--mirostat-tau 5 --mirostat-eta 0.2" "--repeat-penalty 1.3 --repeat-window 8" \
    "--frequency-penalty 0.5 --presence-penalty 0.5"; do
    # shellcheck disable=SC2086
    "$rv" run $spm "the tea" --seed 3 --temp 1.2 -n 24 --ignore-eos --json $how >"$tmp/out" \
        2>"$tmp/err"
    verdict "$how" 0 $? '"tokens":24,' -
    ids "$tmp/out" >"$tmp/b"
    # shellcheck disable=SC2086
    "$rv" run $spm "the tea" --seed 3 --temp 1.2 -n 24 --ignore-eos --json $how >"$tmp/out" \
        2>"$tmp/err"
    ids "$tmp/out" >"$tmp/c"
    same "and the same again" "$tmp/b" "$tmp/c"
    # shellcheck disable=SC2086
    "$rv" run $spm "the tea" --seed 3 --temp 1.2 -n 24 --ignore-eos --json >"$tmp/out" 2>"$tmp/err"
    ids "$tmp/out" >"$tmp/c"
    ! cmp -s "$tmp/b" "$tmp/c"
    verdict "which makes a difference" 0 $? "" ""
done
# shellcheck disable=SC2086
check "a bias for ever" 0 '"ids":\[99,99,99,99\]' - "$rv" run $spm $greedy --logit-bias 99=inf
first=$(cut -d, -f1 "$tmp/a")
# shellcheck disable=SC2086
"$rv" run $spm $greedy --logit-bias "$first=-inf" >"$tmp/out" 2>"$tmp/err"
ids "$tmp/out" | tr , '\n' | grep -qx "$first"
verdict "a bias for never" 1 $? '"ids":\[[0-9]' -
check "a bias that is none" 2 - "must be ID=VALUE" "$rv" run $spm x --logit-bias 5
check "a bias of no number" 2 - "must be ID=VALUE" "$rv" run $spm x --logit-bias 5=nan
check "a bias of an unknown token" 1 - "ruvllm: " "$rv" run $spm x --logit-bias 999999=1
check "an unknown stage" 2 - "no stage 'dance'" "$rv" run $spm x --samplers top_k,dance
check "a value that cannot be" 2 - "--typical-p must be" "$rv" run $spm x --typical-p 7
check "fewer tokens than none" 2 - "must be 0 to" "$rv" run $spm x --min-tokens -1
check "an end token that may not come yet" 0 '"tokens":6,' - \
    "$rv" run $spm x --greedy --json -n 6 --min-tokens 6 --logit-bias 2=50
check "and one that may" 0 '"tokens":1,' - "$rv" run $spm x --greedy --json -n 6 --logit-bias 2=inf
check "logprobs" 0 '"logprobs":\[{"id"' - "$rv" run $spm "the tea" --greedy --json -n 3 --logprobs 3
python3 -c '
import json, math, sys
d = json.load(open(sys.argv[1]))
l = d["logprobs"]
text = "".join(t["token"] for t in l).strip()
good = [t["id"] for t in l] == d["ids"] and text == d["text"].strip() != ""
for t in l:
    top = [x["logprob"] for x in t["top"]]
    good = good and len(top) == 3 and top == sorted(top, reverse=True)
    good = good and t["logprob"] == top[0] and sum(map(math.exp, top)) <= 1.00001
sys.exit(not good)' "$tmp/out"
verdict "logprobs are of the tokens, best first" 0 $? "" ""
check "logprobs without json" 2 - "needs --json" "$rv" run $spm x --logprobs 3
check "too many logprobs" 2 - "must be 0 to 20 (got 21)" "$rv" run $spm x --json --logprobs 21

printf 'hello\n\nand again\n' | "$rv" run $spm -n 3 >"$tmp/out" 2>"$tmp/err"
verdict "lines on standard input are answered one by one" 0 $? "" -
[ "$(wc -l <"$tmp/out")" -ge 2 ]
verdict "an answer a line" 0 $? "" ""
printf 'hello\n' | "$rv" run $spm -n 5 >"$tmp/a" 2>/dev/null
printf 'hello\n' | "$rv" run $spm -n 5 >"$tmp/b" 2>/dev/null
same "and greedily" "$tmp/a" "$tmp/b"

# --- standard input behind a prompt
prompt() { sed 's/.*"prompt_ids":\[\([0-9,]*\)\].*/\1/' "$1" >"$2"; }
printf 'one\ntwo\n\n' | "$rv" run $spm "Summarise:" -n 1 --json >"$tmp/out" 2>"$tmp/err"
verdict "a pipe and a prompt" 0 $? "" -
prompt "$tmp/out" "$tmp/a"
"$rv" run $spm "$(printf 'Summarise:\n\none\ntwo')" -n 1 --json </dev/null >"$tmp/out"
prompt "$tmp/out" "$tmp/b"
same "the prompt, a blank line, the text" "$tmp/a" "$tmp/b"
printf 'one\ntwo\n' >"$tmp/text"
"$rv" run $spm "Summarise:" -n 1 --json <"$tmp/text" >"$tmp/out"
prompt "$tmp/out" "$tmp/b"
same "a file too" "$tmp/a" "$tmp/b"
"$rv" run $spm "" -n 1 --json <"$tmp/text" >"$tmp/out" && prompt "$tmp/out" "$tmp/a"
"$rv" run $spm "$(cat "$tmp/text")" -n 1 --json </dev/null >"$tmp/out" && prompt "$tmp/out" "$tmp/b"
same "an empty prompt leaves the text alone" "$tmp/a" "$tmp/b"
"$rv" run $spm "one" -n 1 --json </dev/null >"$tmp/out" && prompt "$tmp/out" "$tmp/a"
: | "$rv" run $spm "one" -n 1 --json >"$tmp/out" && prompt "$tmp/out" "$tmp/b"
same "an empty pipe adds nothing" "$tmp/a" "$tmp/b"
"$rv" run $spm "one" -n 1 --json <&- >"$tmp/out" && prompt "$tmp/out" "$tmp/b"
same "nor does closed standard input" "$tmp/a" "$tmp/b"
mkfifo "$tmp/pipe"
{ exec 9>"$tmp/pipe"; until grep -q waiting "$tmp/err"; do sleep 0.2; done; echo two >&9; } &
: >"$tmp/err"
"$rv" run $spm "one" -n 1 --json <"$tmp/pipe" >"$tmp/out" 2>"$tmp/err"
verdict "a pipe on which nothing comes is waited for, and why is said" 0 $? "" \
    "waiting for standard input.*/dev/null"
wait
prompt "$tmp/out" "$tmp/a"
"$rv" run $spm "$(printf 'one\n\ntwo')" -n 1 --json </dev/null >"$tmp/out" \
    && prompt "$tmp/out" "$tmp/b"
same "and its text is taken when it comes" "$tmp/a" "$tmp/b"
check "an empty prompt" 1 - "the prompt is empty" "$rv" run $spm ""
check "empty standard input" 1 - "the prompt is empty" "$rv" run $spm -

# --- embeddings
check "embed" 0 '^[-0-9.e]* [-0-9. e]*$' - "$rv" embed $spm "the tea" "and cake"
cp "$tmp/out" "$tmp/a"
check "embed json" 0 '"embeddings":\[{"index":0,"n_tokens":' - \
    "$rv" embed $spm "the tea" "and cake" --json
cp "$tmp/out" "$tmp/json"
python3 -c '
import json, sys
lines = [[float(x) for x in l.split()] for l in open(sys.argv[1])]
vectors = [e["embedding"] for e in json.load(open(sys.argv[2]))["embeddings"]]
good = len(lines) == len(vectors) == 2 and lines[0] != lines[1]
for a, b in zip(lines, vectors):
    good = good and len(a) == len(b) == 48 and abs(sum(x * x for x in a) - 1) < 1e-5
    good = good and max(abs(x - y) for x, y in zip(a, b)) < 1e-6
sys.exit(not good)' "$tmp/a" "$tmp/json"
verdict "two vectors of length 1, the same both ways" 0 $? "" ""
printf 'the tea\r\nand cake' >"$tmp/texts"
"$rv" embed $spm --file "$tmp/texts" >"$tmp/b"
same "embed a file" "$tmp/a" "$tmp/b"
"$rv" embed $spm <"$tmp/texts" >"$tmp/b"
same "embed standard input" "$tmp/a" "$tmp/b"
tail -n 1 "$tmp/texts" | "$rv" embed $spm "the tea" - >"$tmp/b"
same "embed an argument and standard input" "$tmp/a" "$tmp/b"
for how in "--pooling last" "--pooling first" --no-normalize; do
    # shellcheck disable=SC2086
    "$rv" embed $spm "the tea" "and cake" $how >"$tmp/b"
    ! cmp -s "$tmp/a" "$tmp/b"
    verdict "embed $how makes a difference" 0 $? "" ""
done
"$rv" embed $spm "the tea" "and cake" --pooling mean >"$tmp/b"
same "the mean is the default where a model declares nothing" "$tmp/a" "$tmp/b"
check "embed by another pooling" 2 - "must be mean, last or first" "$rv" embed $spm x --pooling max
check "embed texts and a file" 2 - "not both" "$rv" embed $spm x --file "$tmp/texts"
check "embed too long a text" 1 - "text 2 has [0-9]* tokens, more than the 512" \
    "$rv" embed $spm x "$(head -c 3000 /dev/zero | tr '\0' x)"
check "embed more than --ctx" 1 - "of --ctx" "$rv" embed $spm "one two three four five" --ctx 4
check "embed without a tokenizer" 1 - "no tokenizer" "$rv" embed tests/golden/qwen3 x
check "embed by an encoder" 0 '"n_tokens":[0-9]*,"embedding":\[[-0-9]' - \
    "$rv" embed tests/gguf/bert.gguf "hello" --json
check "an encoder does not chat" 1 - "makes embeddings" "$rv" chat tests/gguf/bert.gguf
check "embed nothing" 0 '"embeddings":\[\]' - "$rv" embed $spm --json
check "embed no such file" 1 - "nosuch" "$rv" embed $spm --file "$tmp/nosuch"

# --- text
check "tokenize" 0 "^[0-9,]*$" - "$rv" tokenize $spm "hello world"
"$rv" tokenize $spm "hello world" >"$tmp/t"
check "detokenize" 0 "^hello world$" - "$rv" detokenize $spm "$(cat "$tmp/t")"
check "tokenize json" 0 '^{"ids":\[[0-9,]*\]}$' - "$rv" tokenize $spm "hello" --json
check "tokenize with BOS" 0 "^1," - "$rv" tokenize $spm --bos hello
check "special token text is text" 0 "," - "$rv" tokenize $spm "</s>"
check "unless it is asked for" 0 "^2$" - "$rv" tokenize $spm "</s>" --special
printf '{"text":"hello"}\n{"text":""}\n{"text":"a\\u0000b"}\n' \
    | "$rv" tokenize $spm --jsonl >"$tmp/out" 2>"$tmp/err"
verdict "jsonl" 0 $? '^{"ids":\[\]}$' -
printf '{"txt":1}\n' | "$rv" tokenize $spm --jsonl >"$tmp/out" 2>"$tmp/err"
verdict "bad jsonl line is named" 1 $? - "input line 1"
printf 'hello world' | "$rv" tokenize $spm - >"$tmp/b"
same "tokenize standard input" "$tmp/t" "$tmp/b"
check "bad ids" 2 - "a token id must be" "$rv" detokenize $spm 1,two
check "ids that are of no token" 1 - "token 999999 is not in the vocabulary" \
    "$rv" detokenize $spm 1,999999

# --- templates
cat >"$tmp/t.jinja" <<'END'
{% for m in messages %}[{{ m.role }}]{{ m.content|trim }}
{% endfor %}{{ strftime_now('%Y') }}{{ extra }}
END
echo '{"messages":[{"role":"user","content":" hi "}],"extra":"!"}' >"$tmp/c.json"
check "template file" 0 '^2031!' - "$rv" template "$tmp/t.jinja" "$tmp/c.json" --now 2031-02-03
check "template json" 0 '^{"text":"\[user\]hi' - "$rv" template "$tmp/t.jinja" "$tmp/c.json" --json
check "bad date" 2 - "must be a date" "$rv" template "$tmp/t.jinja" "$tmp/c.json" --now tomorrow
echo "{{ raise_exception('only with tea') }}" >"$tmp/raise.jinja"
check "a template that raises: its message" 1 - "only with tea" \
    "$rv" template "$tmp/raise.jinja" "$tmp/c.json"
echo "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" \
    >"$tmp/loop.jinja"
check "a template that never ends" 1 - "ruvllm: " \
    sh -c 'ulimit -t 120 && exec "$@"' sh "$rv" template "$tmp/loop.jinja" "$tmp/c.json"
echo "{% if %}" >"$tmp/syntax.jinja"
check "a template with an error in it" 1 - "line 1" "$rv" template "$tmp/syntax.jinja" "$tmp/c.json"
echo '{"messages":' >"$tmp/cut.json"
check "a conversation that is no JSON" 1 - "line 2" "$rv" template "$tmp/t.jinja" "$tmp/cut.json"
check "its file is named" 1 - "cut.json: line 2" "$rv" template $spm "$tmp/cut.json"
check "and that of a template" 1 - "syntax.jinja: .*line 1" \
    "$rv" template "$tmp/syntax.jinja" "$tmp/c.json"
: >"$tmp/nothing"
check "an empty conversation" 1 - "nothing: it is empty" "$rv" template $spm "$tmp/nothing"
check "empty messages" 1 - "nothing: it is empty" "$rv" run $spm --messages "$tmp/nothing"
check "perplexity of nothing" 1 - "nothing: it is empty" "$rv" perplexity $spm "$tmp/nothing"
check "ids of an empty file" 1 - "nothing: no token ids" "$rv" run $spm --ids "@$tmp/nothing"
check "template takes what run --messages takes: a list" 0 "Another" - \
    "$rv" template $spm "tests/cli/messages.json"
check "and an object" 0 "hello" - "$rv" template $spm "$tmp/object.json"
echo '{"messages":[{"role":"user","content":"hello"}],"add_generation_prompt":false,"extra":1}' \
    >"$tmp/rendered.json"
check "run takes what template takes" 0 '"text"' - \
    "$rv" run $spm --messages "$tmp/rendered.json" -n 2 --json
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
check "tap by name" 0 - - "$rv" tap tests/golden/gemma2 --ids 5,6 --tap q.0,ffn_post_norm.1 -o \
    "$tmp/p.safetensors"
check "unknown tap" 1 - "no tap named 'q.9'" \
    "$rv" tap tests/golden/llama --ids 5 --tap q.9 -o "$tmp/q.safetensors"
check "tap onto a full disk" 1 - "ruvllm: " "$rv" tap tests/golden/llama --ids 5 -o /dev/full
check "perplexity of too short a text" 1 - "fewer than one window" \
    "$rv" perplexity $spm "$tmp/c.json"
check "perplexity" 0 '^{"ppl":[0-9.]*,' "" \
    "$rv" perplexity $spm tests/golden/README.md --ctx 64 --json
"$rv" info $spm >/dev/full 2>"$tmp/err"
verdict "a full disk behind standard output" 1 $? "" "cannot write"
for what in --help --version "run --help" "learn --help" list; do
    # shellcheck disable=SC2086
    "$rv" $what >/dev/full 2>"$tmp/err"
    verdict "a full disk behind $what" 1 $? "" "cannot write.*No space left"
done
"$rv" list >&- 2>"$tmp/err"
verdict "closed standard output" 1 $? "" "cannot write"

echo "1..$n"
