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
check "who reads" 2 - "'may' is none of measured, on and off" \
    "$eval_program" natural $spm x.jsonl --reading may
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

check "taught, and not asked" 0 '"rel":null,.*"stages":{}' "" \
    "$eval_program" facts $spm "$tmp/fact.json" --mode instant --ask off --json

check "natural corrections without a file" 2 - "a file of corrections" "$eval_program" natural $spm
check "each alone, or together" 2 - "not both" \
    "$eval_program" natural $spm x.jsonl --each --together
check "by weights alone only where there are any" 2 - "go with --trained" \
    "$eval_program" natural $spm x.jsonl --slots off
check "read, or trained" 2 - "goes without --recognise and --trained" \
    "$eval_program" natural $spm x.jsonl --read --trained
check "a fence where there is none" 2 - "goes with --recipe R1" \
    "$eval_program" facts $spm x.json --same-fence off
check "a source of texts that there is not" 1 - "sources must be 0..7 (got 9)" \
    "$eval_program" facts $spm "$tmp/fact.json" --sources 9
check "corrections that are not there" 1 - "x.jsonl" "$eval_program" natural $spm "$tmp/x.jsonl"
wrong() { # NAME MESSAGE LINE: it stands on line 3
    printf '{"id": "a", "question": "q", "answer": "r"}\n\n%b\n' "$3" >"$tmp/wrong.jsonl"
    check "a correction $1" 1 - "wrong.jsonl, line 3: $2" \
        "$eval_program" natural $spm "$tmp/wrong.jsonl"
}
wrong "that is cut off" "column 13: " '{"id": "b", '
wrong "that is not UTF-8" "column .*UTF-8" '{"id": "\0377"}'
wrong "that is a list" "no JSON object" '[]'
wrong "without an answer" '"answer" is missing' '{"id": "b", "question": "q"}'
wrong "whose question is empty" '"question" is no text' '{"id": "b", "question": ""}'
wrong "whose wordings are no list" '"wordings" is no list' \
    '{"id": "b", "question": "q", "answer": "r", "wordings": "w"}'
wrong "that could never be right" '"answer" has none of "accept"' \
    '{"id": "b", "question": "q", "answer": "r", "accept": ["s"]}'

# of each figure something that counts, and something that does not
# fmt: off
cat >"$tmp/natural.jsonl" <<'END'
{"id": "a", "class": "fact", "lang": "en", "question": "What is Nim's colour?", "answer": "Teal.", "accept": ["TEAL"], "wordings": ["How do birds fly?"], "neighbours": ["What is the sea?"], "same_subject": ["What is Nim's colour?"]}
{"id": "b", "lang": "de", "question": "Wie heißt der See?", "answer": "Der Ödsee.", "accept": ["ÖDSEE"], "wordings": ["Wie heißt der See?"]}
{"id": "c", "prompt": "The moon is made of", "answer": "cheese", "rephrase": ["The moon is made of"], "local": ["The moon is made of", {"question": "Why do birds fly?"}]}
END
# fmt: on
figures='"edit":100,"edit_count":3,"edit_of":3.*"wordings_count":2,"wordings_of":3'
figures=$figures'.*"neighbours_count":1,"neighbours_of":3'
figures=$figures'.*"same_subject_count":1,"same_subject_of":1'
figures=$figures'.*"lang":"de","corrections":1,"edit":100,'
check "natural corrections are recognised" 0 "\"begin_max_us\":.*$figures" "" \
    "$eval_program" natural $spm "$tmp/natural.jsonl" --recognise --no-embedder --json
check "natural corrections are spoken" 0 "$figures" "" \
    "$eval_program" natural $spm "$tmp/natural.jsonl" --no-embedder --json
check "natural corrections are read" 0 '"read":true,.*"edit_of":3.*"neighbours_of":3' "" \
    "$eval_program" natural $spm "$tmp/natural.jsonl" --no-embedder --together --read --json
check "natural corrections in one learner, and trained" 0 \
    "$figures.*\"group\":2,.*\"trained\":{\"edit\":" "" \
    "$eval_program" natural $spm "$tmp/natural.jsonl" --no-embedder --together --trained --steps 2 \
    --group 2 --json
check "a decoder as the embedder" 1 - "not an encoder" \
    "$eval_program" natural $spm "$tmp/natural.jsonl" --embedder $spm
echo "1..$n"
