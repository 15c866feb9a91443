#!/bin/sh
# The evaluations of learning: one that runs, and what wrong use is told. Prints TAP.
set -u
. tests/cli/tap.sh
eval_program=build/bench/eval

check "help lists the evaluations" 0 "garbage" - "$eval_program" --help
check "help of one of them" 0 "one-by-one" - "$eval_program" facts --help
check "no evaluation" 2 "" "" "$eval_program"
check "an unknown evaluation" 2 - "unknown command 'luck'" "$eval_program" luck
check "facts without a file" 2 - "a file of facts" "$eval_program" facts $spm
check "an unknown mode" 2 - "none of instant" "$eval_program" facts $spm x.json --mode often
check "an unknown recipe" 2 - "neither R1 nor R7" "$eval_program" facts $spm x.json --recipe R9
check "neither on nor off" 2 - "neither on nor off" "$eval_program" facts $spm x.json --gate maybe
check "an unknown control" 2 - "neither random nor shuffled" \
    "$eval_program" facts $spm x.json --control none
check "facts that are not there" 1 - "x.json" "$eval_program" facts $spm "$tmp/x.json"
echo '{"sets": [{"facts": [{"subject": "Nim"}]}]}' >"$tmp/half.json"
check "half a fact" 1 - "fact 1" "$eval_program" facts $spm "$tmp/half.json"
check "no such set" 1 - "no set 4" "$eval_program" facts $spm "$tmp/half.json" --set 4
echo '[{"style": "rhymes", "teach": [{"prompt": "x"}], "heldout": [{"prompt": "x"}]}]' \
    >"$tmp/style.json"
check "a style that cannot be judged" 1 - \
    "'rhymes' is none that can be judged here: two_sentences" \
    "$eval_program" pref $spm "$tmp/style.json"
check "garbage needs a text" 2 - "--text is needed" "$eval_program" garbage $spm
check "the program itself has no evaluations" 2 - "unknown command 'eval'" "$rv" eval facts

cat >"$tmp/fact.json" <<'END'
{"sets": [{"seed": 1, "facts": [{"subject": "Nim", "relation": "colour", "answer": "teal",
 "prompt": "What is Nim's colour?", "heldout": ["Which colour has Nim?"],
 "neighbours": ["What is Zod's colour?"]}]}], "unrelated": ["What is the sea?"]}
END
check "a correction is known in other words, and nothing else changed" 0 \
    '"rel":100,"gen":100,"nbr":0,.*"loc_identical":100' "" \
    "$eval_program" facts $spm "$tmp/fact.json" --mode instant --json
echo "1..$n"
