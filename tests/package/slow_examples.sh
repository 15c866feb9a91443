#!/bin/sh
# The programs of examples/ do what their comments say: on tiny models, and on the default model
# where it is in the cache. Prints TAP.
# EXAMPLES names their folder (build/examples), RUVLLM the program (./ruvllm).
set -u
dir=${EXAMPLES:-build/examples}
rv=${RUVLLM:-./ruvllm}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
RUVLLM_STATE_DIR=$tmp/state # what the user of this machine taught has no part in a test
export RUVLLM_STATE_DIR
n=0

# run STATUS PROGRAM ARGUMENT...: its output in $tmp/out and $tmp/err; true when it ends with that
# status
run() {
    want=$1 program=$2
    shift 2
    "$dir/$program" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    status=$?
    [ "$status" = "$want" ] || echo "$program ended with $status" >>"$tmp/err"
    [ "$status" = "$want" ]
}
# check NAME COMMAND...
check() {
    name=$1
    shift
    n=$((n + 1))
    if "$@"; then echo "ok $n - $name"; else
        echo "not ok $n - $name"
        head -n 12 "$tmp/out" | sed 's/^/# out: /'
        head -n 12 "$tmp/err" | sed 's/^/# err: /'
    fi
}
skip() {
    n=$((n + 1))
    echo "ok $n # SKIP $1"
}

basic() { # MODEL: the answer is that of the command line
    question=$(printf 'Say "hi"\tnow')
    run 0 basic "$1" "$question" && [ -s "$tmp/out" ] || return 1
    "$rv" run "$1" "$question" --greedy -n 100 >"$tmp/cli" 2>>"$tmp/err" \
        && cmp "$tmp/out" "$tmp/cli" >>"$tmp/err"
}
streaming() { # MODEL: cancelled after 5 tokens; the same seed gives the same text
    run 0 streaming "$1" 5 'Once upon' && grep -q '^finish: cancelled, tokens: 5$' "$tmp/out" &&
        grep -q '^done: cancelled after 5 tokens' "$tmp/err" \
            && head -n 1 "$tmp/out" | grep -q '^Once upon' || return 1
    cp "$tmp/out" "$tmp/first"
    run 0 streaming "$1" 5 'Once upon' && cmp "$tmp/out" "$tmp/first" >>"$tmp/err"
}
speculative() { # MODEL [DRAFT]
    run 0 speculative "$@" && grep -q '^the answers are equal$' "$tmp/err" \
        && grep -q '^plain: .* 0 guessed' "$tmp/err"
}
not_cancelled() { # MODEL: left alone an answer comes to its own end
    run 0 streaming "$1" 1000 'Once upon' \
        && grep -qE '^finish: (eos|length), tokens: [0-9]+$' "$tmp/out"
}
multi_turn() { # MODEL: nothing is reused by the first turn, and much, but not all, by the second
    run 0 multi_turn "$1" && sed -n \
        's/^turn \([12]\): \([0-9]*\) prompt tokens, \([0-9]*\) reused$/\1 \2 \3/p' "$tmp/out" |
        awk '$1 == 1 && $2 > 0 && $3 == 0 { first = $2 }
            $1 == 2 && first && $2 > first && 2 * $3 > first && $3 < $2 { good = 1 }
             END { exit !good }'
}
online_correction() { # MODEL: wrong before, right afterwards, and as before once it is taken back
    run 0 online_correction "$1" && grep -q 'lighthouse keeper' "$tmp/out" || return 1
    awk '/^before/ { getline before } /^taken back/ { getline again }
        END { exit !(before != "" && before == again) }' "$tmp/out"
}
micro_lora() { # MODEL: some of the scores changed the adapter
    run 0 micro_lora "$1" 12 "Say hi" \
        && grep -qE '^12 scores, [1-9][0-9]* of them changed the adapter' "$tmp/out"
}
# The matrix of embeddings: ones on the diagonal, symmetric, cosines. CONDITION in awk on c[i, k].
embeddings() { # CONDITION ARGUMENT...
    condition=$1
    shift
    run 0 embeddings "$@" && grep -E '^ *-?[0-9.]+ +-?[0-9.]+ +-?[0-9.]+$' "$tmp/out" | awk '
        { for (k = 1; k <= 3; k++) c[NR, k] = $k }
        END {
            good = NR == 3
            for (i = 1; i <= 3; i++)
                for (k = 1; k <= 3; k++) {
                    good = good && c[i, k] == c[k, i] && c[i, k] >= -1 && c[i, k] <= 1.0001
                    good = good && (i != k || c[i, k] > 0.9999)
                }
            exit !(good && ('"$condition"'))
        }'
}
ids_of() { sed -n "s/^$1: //p" "$tmp/out"; }
adapter() {
    # MODEL ADAPTER: it changes the answer, by its scale, and nothing else; the command line agrees
    run 0 adapter "$1" "$2" 0 \
        && [ -n "$(ids_of without)" ] && [ "$(ids_of with)" = "$(ids_of without)" ] || return 1
    plain=$(ids_of without)
    run 0 adapter "$1" "$2" 1 "Once upon a time" \
        && [ "$(ids_of with)" != "$plain" ] && [ "$(ids_of without)" = "$plain" ] &&
        [ "$(ids_of 'without again')" = "$plain" ] || return 1
    "$rv" run "$1" "Once upon a time" --raw --greedy -n 24 --lora "$2" --json >"$tmp/json" \
        2>>"$tmp/err" &&
        python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["ids"])' "$tmp/json" \
            >"$tmp/ids" && [ "$(cat "$tmp/ids")" = "$(ids_of with)" ]
}
equal_answers() { # COUNT
    [ "$(grep -c '^[1-9][0-9]* tokens, equal to alone$' "$tmp/out")" = "$1" ]
}
two_runtimes() { run 0 two_runtimes "$1" && equal_answers 2; }
batch() { # MODEL: equal answers in fewer steps than tokens
    run 0 batch "$1" && equal_answers 4 &&
        sed -n 's/^4 answers, \([0-9]*\) tokens, \([0-9]*\) steps$/\1 \2/p' "$tmp/out" \
            | awk '$1 > $2 && $2 > 0 { good = 1 } END { exit !good }' &&
        run 0 batch "$1" "a" "a longer prompt that takes several steps" "a" && equal_answers 3
}
refuses() { # PROGRAM [ARGUMENT]: wrong use is 2; a model that is not there is 1, and is named
    of=$1
    shift
    run 2 "$of" && grep -q '^usage: ' "$tmp/err" \
        && run 1 "$of" /no/such/model "$@" && grep -q "^$of: .*/no/such/model" "$tmp/err"
}

# Golden weights and adapters come without a tokenizer: one byte a token, and names for the ids
# beyond.
golden=tests/golden/llama
mkdir "$tmp/model"
cp $golden/config.json $golden/model.safetensors "$tmp/model"
python3 - "$tmp/model/tokenizer.json" <<'EOF'
import json, sys
plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
letters = {b: chr(b) for b in plain}
letters.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in plain)})
vocab = {letters[b]: b for b in range(256)}
vocab.update({f"<{i}>": i for i in range(256, 320)})
byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}
json.dump({"version": "1.0", "added_tokens": [], "normalizer": None,
           "pre_tokenizer": byte_level, "post_processor": None,
           "decoder": byte_level, "model": {"type": "BPE", "vocab": vocab, "merges": []}}, open(sys.argv[1], "w"))
EOF

for model in llama-spm llama qwen3 gemma2; do
    file=tests/gguf/$model.gguf
    check "basic, $model" basic $file
    check "streaming, $model" streaming $file
    check "streaming to the end, $model" not_cancelled $file
    check "multi_turn, $model" multi_turn $file
    check "embeddings, $model" embeddings \
        'c[1, 2] < 0.9999 && c[1, 3] < 0.9999 && c[2, 3] < 0.9999' $file
    check "two_runtimes, $model" two_runtimes $file
    check "batch, $model" batch $file
    check "online_correction, $model" online_correction $file
    check "micro_lora, $model" micro_lora $file
    check "speculative, $model" speculative $file
    check "speculative, $model, guessed by itself" speculative $file $file
done
check "embeddings of equal texts are equal" embeddings 'c[1, 2] < 0.9999 && c[1, 3] > 0.9999' \
    tests/gguf/llama-spm.gguf "one text" "another" "one text"
check "adapter" adapter "$tmp/model" $golden/lora
for program in basic streaming multi_turn embeddings two_runtimes batch online_correction \
    micro_lora structured tools speculative; do
    check "$program says what is wrong" refuses $program
done
check "adapter says what is wrong" refuses adapter $golden/lora

real=${RUVLLM_CACHE_DIR:-$HOME/.cache/ruvllm}/models/SmolLM2-135M-Instruct.Q4_1.gguf
structured() {
    run 0 structured "$real" "Tom is 7 and cries." \
        && python3 -c 'import json, sys
v = json.load(open(sys.argv[1]))
assert set(v) == {"name", "age", "mood"} and v["mood"] in ("happy", "sad", "unknown")
assert 0 <= v["age"] <= 150' "$tmp/out"
}
tools() {
    run 0 tools "$real" && grep -q '^\[multiply {' "$tmp/out" && grep -q '^\[result: ' "$tmp/out"
}
paris() { run 0 basic "$real" "Name the capital city of France." && grep -q Paris "$tmp/out"; }
if [ -f "$real" ]; then
    check "basic, smollm2: Paris" paris
    check "structured, smollm2" structured
    check "tools, smollm2: a call and its result" tools
    check "speculative, smollm2" speculative "$real"
    check "streaming, smollm2" streaming "$real"
    check "multi_turn, smollm2" multi_turn "$real"
    check "embeddings, smollm2: what means the same is nearer" embeddings 'c[1, 2] > c[1, 3]' \
        "$real"
    check "two_runtimes, smollm2" two_runtimes "$real"
    check "batch, smollm2" batch "$real"
    check "online_correction, smollm2" online_correction "$real"
else
    skip "the default model is not here"
fi
echo "1..$n"
