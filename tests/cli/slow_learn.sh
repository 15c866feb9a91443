#!/bin/sh
# Teaching on the command line: what is taught is answered, kept, looked at, taken back; bad input
# changes nothing. Prints TAP.
set -u
. tests/cli/tap.sh
ask="What is Zorblat's colour?"

says() { # NAME TEXT COMMAND...: standard output is exactly TEXT, nothing on standard error
    name=$1 want=$2
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    status=$?
    [ "$(cat "$tmp/out")" = "$want" ] || status="other output"
    verdict "$name" 0 "$status" "" -
}
records() { "$rv" learn log verify -m $spm --json | sed 's/.*"records":\([0-9]*\).*/\1/'; }

# --- nothing was taught
"$rv" run $spm "$ask" --greedy -n 8 >"$tmp/alone" 2>/dev/null
check "run does not make a state" 1 - - test -e "$RUVLLM_STATE_DIR"
check "status of nothing" 0 "Nothing was taught" - "$rv" learn status -m $spm
check "nothing to verify" 1 - "nothing was taught" "$rv" learn log verify -m $spm
check "a name that was never taught" 1 - "nothing was taught to this model as 'work'" \
    "$rv" run $spm "$ask" --adapter work

# --- wrong use
check "no model" 2 - "a model is needed" "$rv" teach
check "a question without an answer" 2 - "go together" "$rv" teach $spm -q x
check "an unknown scope before what goes together" 2 - \
    "must be topic, exact or always (got 'allways')" "$rv" teach $spm --scope allways -a x
check "an instruction with a question" 2 - "a lesson of --scope always has no -q" \
    "$rv" teach $spm --scope always -q x -a x
check "neither question nor file" 2 - "either -q and -a, or a file" "$rv" teach $spm
check "two loops" 2 - "give one of --instant" "$rv" teach $spm -q x -a y --deep --background
check "no action" 2 - "an action is needed" "$rv" learn
check "an unknown action" 2 - "unknown action 'dance'; there are status, run" "$rv" learn dance
check "a mistyped action" 2 - "did you mean 'status'" "$rv" learn statsu
check "merge needs two" 2 - "merge takes two arguments" "$rv" learn merge 1
check "an unknown way to merge" 2 - "must be average or quality (got 'best')" \
    "$rv" learn merge 1 2 --how best
check "a name that is a path" 2 - "--adapter must be .*(got '../x')" \
    "$rv" teach $spm -q x -a y --adapter ../x

# --- bad input changes nothing
check "an empty answer" 1 - "the answer is empty" "$rv" teach $spm -q "$ask" -a "  "
check "an empty question" 1 - "the question is empty" "$rv" teach $spm -q "" -a "x"
check "bytes that are no text" 1 - "not UTF-8" "$rv" teach $spm -q "$(printf 'a\377')" -a "x"
check "a file that is not there" 1 - "none.jsonl: No such file" \
    "$rv" teach $spm "$tmp/none.jsonl"
check "a directory" 1 - "a directory; a file of lessons is needed" "$rv" teach $spm .
: >"$tmp/empty.jsonl"
check "a file without a lesson" 1 - "holds no lesson" "$rv" teach $spm "$tmp/empty.jsonl"
echo '{"question": "x"}' >"$tmp/half.jsonl"
check "half a lesson" 1 - "half.jsonl, line 1" "$rv" teach $spm "$tmp/half.jsonl"
echo '{"question": "x", "answer": 5}' >"$tmp/number.jsonl"
check "a number for an answer" 1 - 'number.jsonl, line 1: "answer" must be a text' \
    "$rv" teach $spm "$tmp/number.jsonl"
cat >"$tmp/nul.jsonl" <<'END'
{"question": "x", "answer": "y"}
{"question": "a\u0000b", "answer": "y"}
END
check "a NUL character" 1 - 'nul.jsonl, line 2: "question" holds a NUL character' \
    "$rv" teach $spm "$tmp/nul.jsonl"
echo 'hello' >"$tmp/plain.jsonl"
check "a line that is no JSON" 1 - "plain.jsonl, line 1: not JSON, column 1" \
    "$rv" teach $spm "$tmp/plain.jsonl"
{ printf '{"question": "%s", "answer": "' "$ask" \
    && head -c 300000 /dev/zero | tr '\0' a && echo '"}'; } >"$tmp/huge.jsonl"
check "a huge answer" 1 - "huge.jsonl, line 1" "$rv" teach $spm "$tmp/huge.jsonl"
head -c 2000000 /dev/zero | tr '\0' a >"$tmp/long.jsonl"
check "an endless line" 1 - "longer than" "$rv" teach $spm "$tmp/long.jsonl"
says "and the model answers as before" "$(cat "$tmp/alone")" "$rv" run $spm "$ask" --greedy -n 8

# --- teaching
check "teach says what changed and shows the answer" 0 "^purple" - \
    "$rv" teach $spm -q "$ask" -a "purple"
says "another process answers it" "purple" "$rv" run $spm "$ask" --greedy -n 8
says "without learning the model alone answers" "$(cat "$tmp/alone")" \
    "$rv" run $spm "$ask" --greedy -n 8 --no-learn
says "the answer of another name is its own" "$(cat "$tmp/alone")" \
    "$rv" run $spm "$ask" --greedy -n 8 --no-learn --adapter work
"$rv" run $spm "What is a hill?" --greedy -n 8 --json --no-learn 2>/dev/null \
    | sed 's/,"timings.*//' >"$tmp/a"
"$rv" run $spm "What is a hill?" --greedy -n 8 --json 2>/dev/null | sed 's/,"timings.*//' >"$tmp/b"
check "another question gets the same tokens" 0 - - cmp "$tmp/a" "$tmp/b"
check "status lists it" 0 "    purple" - "$rv" learn status -m $spm
check "status as JSON" 0 '"lessons":1' - "$rv" learn status -m $spm --json
check "the log is whole" 0 "1 record, the chain is whole" - "$rv" learn log verify -m $spm
cat >"$tmp/two.jsonl" <<'END'
{"question": "What is Nim's pet?", "answer": "a duck"}

{"question": "What is Nim's town?", "answer": "Oslo"}
END
check "a file of lessons, as JSON" 0 '"applied":true' - "$rv" teach $spm "$tmp/two.jsonl" --json
says "of it too is answered" "Oslo" "$rv" run $spm "What is Nim's town?" --greedy -n 8
says "the newest correction counts" "green" sh -c \
    "'$rv' teach $spm -q \"$ask\" -a green >/dev/null && '$rv' run $spm \"$ask\" --greedy -n 8 | tr 'G.' 'g '  | tr -d ' '"
cat >"$tmp/bad2.jsonl" <<'END'
{"question": "What is Ada's pet?", "answer": "a goat"}
not a lesson
{"question": "What is Ada's town?"}
END
before=$(records)
check "a file with bad lines: nothing is taught, and that is said" 1 - \
    "bad2.jsonl, line 2: .*nothing was taught (2 of 3 lines wrong)" \
    "$rv" teach $spm "$tmp/bad2.jsonl"
[ "$before" = "$(records)" ]
verdict "and nothing was" 0 $? "" ""
cat >"$tmp/all.jsonl" <<'END'
{"question": "What is Nim's pet?", "answer": "a duck"}
{"question": "Explain tides.", "answer": "The moon causes them.\n\nTwice a day they come."}
{"question": "Tell me of hills.", "chosen": "Short.", "rejected": "A very long story."}
{"question": "Where did Bo hide the key?", "answer": "under the mat"}
{"question": " Where did  Bo hide the key?", "answer": "under the mat"}
END
check "a file of lessons ends with a summary" 0 "^5 lessons: 3 taught, 2 already known$" - \
    "$rv" teach $spm "$tmp/all.jsonl"
check "and with what it saw when it asked again" 0 "^asked again: 3 of 3 get their answer, " - \
    "$rv" teach $spm "$tmp/all.jsonl" --adapter looked
cat >"$tmp/twice.jsonl" <<'END'
{"question": "Who is Ulm?", "answer": "a cook"}
{"question": "Who is Orn?", "answer": "a cook"}
{"question": "Who  is Ulm?", "answer": "a baker"}
{"question": "Who is Orn?", "answer": "a  cook"}
{"question": "Who is Orn?", "chosen": "A cook.", "rejected": "A baker."}
END
check "two answers to one question are named" 0 "^5 lessons: 4 taught, 1 already known$" \
    "^ruvllm: warning: .*twice.jsonl, lines 1 and 3: two answers .* line 3 counts$" \
    "$rv" teach $spm "$tmp/twice.jsonl" --adapter twice
verdict "and nothing else" 1 "$(grep -c warning "$tmp/err")" "" ""
says "the later counts" "a baker" "$rv" run $spm "Who is Ulm?" --greedy -n 8 --adapter twice
echo '{"question": "Who is Orn?", "chosen": "A cook.", "rejected": "A cook."}' >"$tmp/same.jsonl"
check "a preference between the same" 1 - 'line 1: "chosen" and "rejected" are the same text' \
    "$rv" teach $spm "$tmp/same.jsonl"
before=$(records)
check "the same again is already known" 0 "^5 lessons: 0 taught, 5 already known$" - \
    "$rv" teach $spm "$tmp/all.jsonl"
check "also as JSON" 0 '"applied":false.*"already known"' - "$rv" teach $spm "$tmp/all.jsonl" --json
check "also one" 0 "Already known: What is Nim" - \
    "$rv" teach $spm -q "What is Nim's pet?" -a "a duck"
[ "$before" = "$(records)" ]
verdict "and is not written down twice" 0 $? "" ""
check "another answer is not" 0 "^a cat" - "$rv" teach $spm -q "What is Nim's pet?" -a "a cat"
check "nor the first one after it" 0 "^a duck" - \
    "$rv" teach $spm -q "What is Nim's pet?" -a "a duck"
# --- where a lesson counts
check "a lesson for one very question" 0 "^brown" - \
    "$rv" teach $spm -q "Which hue has Plim?" -a "brown" --scope exact --adapter scope
check "shown as such" 0 "waits for training; for this very question" - \
    "$rv" learn status -m $spm --adapter scope
check "again is already known" 0 "Already known" - \
    "$rv" teach $spm -q "Which hue has Plim?" -a "brown" --scope exact --adapter scope
check "with another scope it is not" 0 "Learned: brown" - \
    "$rv" teach $spm -q "Which hue has Plim?" -a "brown" --adapter scope
check "what it took the place of is shown" 0 "before: brown" - \
    "$rv" learn status -m $spm --adapter scope
check "an instruction for every chat" 0 "Learned: Be brief" - \
    "$rv" teach $spm -a "Be brief." --scope always --adapter scope
check "has no question" 2 - "has no -q" "$rv" teach $spm -q x -a y --scope always
check "an unknown scope" 2 - "topic, exact or always (got 'all')" \
    "$rv" teach $spm -q x -a y --scope all
echo '{"answer": "Be kind.", "scope": "always"}' >"$tmp/scope.jsonl"
check "a file with scopes" 0 "1 taught" - "$rv" teach $spm "$tmp/scope.jsonl" --adapter scope
check "known by then" 0 "1 already known" - "$rv" teach $spm "$tmp/scope.jsonl" --adapter scope
echo '{"question": "x", "answer": "Be kind.", "scope": "always"}' >"$tmp/scope.jsonl"
check "a question there too" 1 - "line 1: a lesson of scope always counts in every chat" \
    "$rv" teach $spm "$tmp/scope.jsonl" --adapter scope
says "it is read first" \
    "$("$rv" run $spm "Hello" -s "$(printf 'Be brief.\nBe kind.')" --greedy -n 8)" \
    "$rv" run $spm "Hello" --greedy -n 8 --adapter scope
printf 'Hello\n/fix --always Use rhymes.\n/fix --exact blue\n/learned\n' >"$tmp/scope.txt"
check "in a chat" 0 "Use rhymes" - \
    sh -c "'$rv' chat $spm -n 4 --adapter scope <'$tmp/scope.txt' 2>&1"
check "forgotten by a part of it" 0 "before every chat: Use rhymes" - \
    "$rv" learn forget rhym -m $spm --adapter scope
check "status names the model" 0 "llama-spm.gguf.*taught as 'default'" - "$rv" learn status -m $spm
check "status shows preferences" 0 "rather: Short" - "$rv" learn status -m $spm
check "also as JSON" 0 \
    '"preferences":\[{"event":[0-9]*,"question":"Tell me of hills.","chosen":"Short."' - \
    "$rv" learn status -m $spm --json
before=$(records)
check "several are not forgotten unasked" 1 - "'zORbl' is in these 2, .*nothing was forgotten: -y" \
    "$rv" learn forget zORbl -m $spm
verdict "but listed" 1 1 "" "^    purple (taken back or corrected before)$"
[ "$before" = "$(records)" ]
verdict "and nothing is written down" 0 $? "" ""
check "neither as JSON" 1 - "'zORbl' is in these 2" "$rv" learn forget zORbl -m $spm --json
check "forget says what, by a part of a word" 0 "^    green$" - \
    "$rv" learn forget zORbl -m $spm -y
says "and it is" "$(cat "$tmp/alone")" "$rv" run $spm "$ask" --greedy -n 8
before=$(records)
check "forgetting what is not there" 1 - "nothing that was taught contains 'Quux'" \
    "$rv" learn forget Quux -m $spm
[ "$before" = "$(records)" ]
verdict "is not written down" 0 $? "" ""
check "two words without quotes" 2 - "one text, in quotes" "$rv" learn forget the mat -m $spm
"$rv" teach $spm -q "What is red" -a "a colour" --adapter red >"$tmp/none" 2>&1
"$rv" teach $spm -q "What is red wine?" -a "a drink" --adapter red >"$tmp/none" 2>&1
check "one lesson" 0 "a colour" - "$rv" learn forget COLOUR -m $spm --adapter red
check "and not a longer one with its words" 0 "red wine" - "$rv" learn status -m $spm --adapter red
check "forget as JSON" 0 '"forgotten":\[{"question":"Where did Bo hide the key?",' - \
    "$rv" learn forget "the mat" -m $spm --json
"$rv" teach $spm -q "Who is Nim?" -a "a weaver" --adapter ended >"$tmp/none" 2>&1
"$rv" learn undo -m $spm --adapter ended >"$tmp/none" 2>&1
check "what was undone is forgotten too" 0 "^    a weaver (taken back or corrected before)$" - \
    "$rv" learn forget weav -m $spm --adapter ended
check "and not found again" 1 - "nothing that was taught contains 'weav'" \
    "$rv" learn forget weav -m $spm --adapter ended
"$rv" teach $spm -q "$ask" -a "purple" --adapter ended >"$tmp/none" 2>&1
"$rv" teach $spm -q "$ask" -a "green" --adapter ended >"$tmp/none" 2>&1
check "so is what was corrected since" 0 "^    purple (taken back or corrected before)$" - \
    "$rv" learn forget purple -m $spm --adapter ended
says "and what took its place stays" "green" "$rv" run $spm "$ask" --greedy -n 8 --adapter ended
steps=$(seq 1 250)
check "a long lesson is shown whole" 0 "^250$" "" \
    "$rv" teach $spm -q "How is a Zonk built?" -a "$steps" --adapter long --ctx 2048
check "and spoken whole, whatever the default limit is" 0 "^250$" "" \
    "$rv" run $spm "How is a Zonk built?" --adapter long --ctx 2048
echo "How is a Zonk built?" >"$tmp/talk"
"$rv" chat $spm --adapter long --ctx 2048 <"$tmp/talk" >"$tmp/out" 2>"$tmp/err"
verdict "in a chat too" 0 $? "^250$" ""
check "but not beyond a limit that is given" 0 "^1$" - \
    "$rv" run $spm "How is a Zonk built?" --adapter long -n 9
printf 'Tell of Zim.\n/good\n/bad\nTell of Zam.\n/good\n/fix zap\n' >"$tmp/judged.txt"
"$rv" chat $spm -n 4 --adapter judged <"$tmp/judged.txt" >"$tmp/none" 2>&1
check "judgements of a text are found" 1 - "'zim' is in these 2, " \
    "$rv" learn forget zim -m $spm --adapter judged
verdict "and listed" 1 1 "" "^    bad: "
check "they are forgotten too" 0 "^Forgotten 2 judgements:$" - \
    "$rv" learn forget zim -m $spm --adapter judged -y
verdict "a score under a later one leaves its step" 0 0 "^The step of 1 score stays" ""
check "they are shown no more, and the others are" 0 "^1 judgement$" - \
    "$rv" learn status -m $spm --adapter judged
check "what was not forgotten can be undone" 0 "^No longer: zap" - \
    "$rv" learn undo -m $spm --adapter judged
check "a lesson and judgements as JSON" 0 '"judgements":\[{"question":"Tell of Zam."' - \
    "$rv" learn forget zam -m $spm --adapter judged -y --json
"$rv" teach $spm -q "$ask" -a "blue." --adapter shade >"$tmp/none" 2>&1
"$rv" learn undo -m $spm --adapter shade >"$tmp/none" 2>&1
"$rv" teach $spm -q "$ask" -a "blue green" --adapter shade >"$tmp/none" 2>&1
check "what was undone goes" 0 "^    blue. (taken back or corrected before)$" - \
    "$rv" learn forget blue. -m $spm --adapter shade
says "and not what is taught in its words" "blue green" \
    "$rv" run $spm "$ask" --greedy -n 16 --adapter shade
check "a name has a state of its own" 0 "^teal" - \
    "$rv" teach $spm -q "$ask" -a "teal" --adapter work
says "that is used by its name" "teal" "$rv" run $spm "$ask" --greedy -n 8 --adapter work
says "and only by it" "$(cat "$tmp/alone")" "$rv" run $spm "$ask" --greedy -n 8

# --- a second look at what was taught, by spelling alone, so that it is the same on every machine
again="--adapter again --cache-dir $tmp/no-models"
# a neighbour names something that everybody knows; which, the model finds likeliest
named='\(Kenya\|Brazil\|Paris\|Mozart\|Maria\|Hamlet\|Saturn\|Toyota\|Sony\|Piano\|Hotel'
named="$named\\|Radio\\)"
other="\"What is the mayor.s name in $named?\" unchanged"
check "teach asks again" 0 \
    "^now answered in 3 of 3 wordings; $other\$" "" \
    "$rv" teach $spm -q "What is the mayor's name in Quelm?" -a "Orla Finch" $again
check "for one very question" 0 \
    "^now answered for this very question; \"Which hue has $named?\" unchanged" "" \
    "$rv" teach $spm -q "Which hue has Plim?" -a "brown" --scope exact $again
check "in another script" 0 \
    '^now answered in 3 of 3 wordings; "\(中国\|北京\|李白\|三国志\|地球\|牛肉\)的首都是哪里？" unchanged$' "" \
    "$rv" teach $spm -q "加拿大的首都是哪里？" -a "Kingston" $again
path="My father wants to see the Crannoch waterfall once more.
Is there another way to get him to the waterfall?"
check "a neighbour that it reaches too" 0 \
    'but so is "My father.*: --scope exact keeps it to this very' "" \
    "$rv" teach $spm -q "$path" -a "By the sawmill." $again
check "nothing about it as JSON" 0 '^{"answer":"brown' "" \
    sh -c "'$rv' teach $spm -q 'Which hue has Plum?' -a brown --json $again | tail -n 1"
printf 'Who is Vor?\n/fix A smith.\n/bad\n' >"$tmp/talk"
"$rv" chat $spm -n 16 $again <"$tmp/talk" >"$tmp/out" 2>"$tmp/err"
verdict "a correction in a chat is looked at" 0 $? "smith" \
    "^now answered in . of 3 wordings.*\"Who is $named?\" unchanged"
verdict "so is a thumb for what was taught" 0 0 "" '^the lesson is gone from 3 of 3 wordings$'
check "what was turned down is taught again" 0 \
    "^now answered in 3 of 3 wordings; \"Who is $named?\" unchanged" "" \
    "$rv" teach $spm -q "Who is Vor?" -a "A smith." $again
check "status says what lessons are recognised by" 0 \
    "^recognised by spelling alone, .*pull minilm" - \
    "$rv" learn status -m $spm $again
check "also as JSON" 0 '"recognises":"spelling"' - "$rv" learn status -m $spm $again --json
printf '/learned\n' >"$tmp/talk"
"$rv" chat $spm $again <"$tmp/talk" >"$tmp/out" 2>"$tmp/err"
verdict "and in a chat" 0 $? "" "^recognised by spelling alone"

# --- however many have the text, it is in none afterwards
for i in $(seq 1100); do
    echo "{\"question\": \"What is the code of locker $i?\", \"answer\": \"Zulu $i.\"}"
done >"$tmp/lockers.jsonl"
lockers="-m $spm --adapter lockers --cache-dir $tmp/without"
"$rv" teach $spm "$tmp/lockers.jsonl" --adapter lockers --cache-dir "$tmp/without" >/dev/null 2>&1
check "all of many are forgotten" 0 "^Forgotten 1100 lessons:" - \
    "$rv" learn forget zulu -y $lockers
check "and none is left" 0 "^no corrections" - "$rv" learn status $lockers

# --- an embedder that disappears: what was taught with it is still answered, by spelling
models=${RUVLLM_CACHE_DIR:-$HOME/.cache/ruvllm}/models/all-MiniLM-L6-v2
if [ -e "$models/model.safetensors" ]; then
    mkdir -p "$tmp/cache/models"
    cp -R "$models" "$tmp/cache/models"
    gone="--adapter gone --cache-dir $tmp/cache"
    check "taught with an embedder" 0 "^now answered in . of 3" - \
        "$rv" teach $spm -q "Who is Vor?" -a "A smith." $gone
    check "status names it" 0 "^recognised by meaning, with all-MiniLM" - \
        "$rv" learn status -m $spm $gone
    head -c "$(wc -c <"$models/model.safetensors")" /dev/zero \
        >"$tmp/cache/models/all-MiniLM-L6-v2/model.safetensors"
    check "a damaged one is named" 0 "^recognised by spelling alone" "spelling alone: .*MiniLM" \
        "$rv" learn status -m $spm $gone
    weights=$tmp/cache/models/all-MiniLM-L6-v2/model.safetensors
    cp "$models/model.safetensors" "$weights"
    head -c 8388608 /dev/urandom | dd of="$weights" bs=1048576 seek=60 conv=notrunc 2>/dev/null
    check "one that computes nonsense too" 0 "^recognised by spelling alone" \
        "spelling alone: .*damaged" "$rv" learn status -m $spm $gone
    head -c 8388608 "$models/model.safetensors" >"$weights"
    check "and one cut short" 0 "^recognised by spelling alone" "spelling alone: .*not whole" \
        "$rv" learn status -m $spm $gone
    rm -r "$tmp/cache/models/all-MiniLM-L6-v2"
    check "status says that it is gone" 0 "^recognised by spelling alone" - \
        "$rv" learn status -m $spm $gone
    says "what it learned is answered all the same" "A smith." \
        "$rv" run $spm "Who is Vor?" --greedy -n 12 $gone
else
    n=$((n + 1))
    echo "ok $n # SKIP all-MiniLM-L6-v2 is not in the cache"
fi

# --- several at once: each waits for the others
for i in 1 2 3 4 5 6 7 8; do
    "$rv" teach $spm -q "What is Wex$i's dog?" -a "Rex$i" --adapter many >/dev/null 2>>"$tmp/many" &
done
wait
says "lessons taught at the same time are all learned" "8" \
    sh -c "'$rv' learn status -m $spm --adapter many | sed -n '2s/ .*//p'"

# --- feedback in a chat that is no terminal
printf '%s\n/fix Zorblat is orange.\n/learned\n/undo\n//learned\n' "$ask" >"$tmp/talk"
"$rv" chat $spm -n 16 <"$tmp/talk" >"$tmp/out" 2>"$tmp/err"
verdict "a chat takes corrections" 0 $? "range" "Learned: Zorblat is orange"
printf '%s\n' "What is Kakovin's dog?" "/fix Rex" "/fix Rex" "What is the dog of Kakovin?" \
    "/fix Fido" "/fix Fido" "/learned" >"$tmp/talk"
"$rv" chat $spm -n 16 --adapter known <"$tmp/talk" >"$tmp/out" 2>"$tmp/err"
verdict "the same correction again is known" 0 $? "^Fido" "^Already known"
verdict "and not stored" 0 0 "" "^2 corrections, "
verdict "and what the other wording still gets is said" 0 0 "" \
    "^\"What is Kakovin's dog?\" still gets \"Rex\"$"
[ "$(grep -c "still gets" "$tmp/err")" = 1 ]
verdict "once" 0 $? "" ""
check "its undo took it back" 0 - "" sh -c "'$rv' learn status -m $spm | grep orange; true"
printf '%s\n/fix """\n1. Boil.\n\n2. Pour.\n"""\n%s\n/undo\n' "$ask" "$ask" |
    "$rv" chat $spm -n 40 >"$tmp/out" 2>"$tmp/err"
verdict "an answer of several lines" 0 $? "" "Learned: 1. Boil. ... (3 lines)"
cp "$tmp/out" "$tmp/lines.txt"
says "is spoken with its lines" "2" grep -c "^2. Pour." "$tmp/lines.txt"
printf '%s\n/fix """\n1. Boil.\n' "$ask" | "$rv" chat $spm -n 4 >"$tmp/out" 2>"$tmp/err"
verdict "a block without an end is refused" 1 $? "" "have no end"
printf '/fix x\n/score 1\n' | "$rv" chat $spm -n 4 >"$tmp/out" 2>"$tmp/err"
verdict "no answer to judge" 0 $? - "no answer to judge"
printf 'hello\n/fix --alway Rhyme.\n' | "$rv" chat $spm -n 4 >"$tmp/out" 2>"$tmp/err"
verdict "a mistyped scope is no answer" 0 $? "" "Did you mean --always?"
printf 'hello\n/fix --topic --alway Rhyme.\n/undo\n' |
    "$rv" chat $spm -n 4 >"$tmp/out" 2>"$tmp/err"
verdict "unless it is said to be one" 0 $? "" "Learned: --alway Rhyme."
printf 'hello\n/score 2\n/fix\n' | "$rv" chat $spm -n 4 >"$tmp/out" 2>"$tmp/err"
verdict "a score that is none" 0 $? "" "from 0 (bad) to 1"
printf 'hello\n/good\n' | "$rv" chat $spm -n 4 --no-learn >"$tmp/out" 2>"$tmp/err"
verdict "with --no-learn nothing is learned" 0 $? "" "Nothing is learned here"

# --- a chat and commands beside it learn from each other
mkfifo "$tmp/lines"
"$rv" chat $spm -n 4 --adapter chatted <"$tmp/lines" >"$tmp/chat" 2>"$tmp/chat.err" &
exec 8>"$tmp/lines"
echo "hello" >&8
echo "/fix Rex" >&8
until grep -q Learned "$tmp/chat.err"; do sleep 0.1; done
says "another process knows what it was taught" "Rex" \
    "$rv" run $spm "hello" --greedy -n 4 --adapter chatted
check "teaching beside a chat" 0 "^teal" - \
    "$rv" teach $spm -q "$ask" -a "teal" --adapter chatted
echo "$ask" >&8
exec 8>&-
wait
grep -q teal "$tmp/chat"
verdict "the chat knows it" 0 $? "" ""

# --- training
check "run with nothing taught" 0 "Nothing waits" - "$rv" learn run -m $spm --adapter never
check "run with nothing that waits" 0 '"applied":false.*"nothing waits"' - \
    sh -c "'$rv' learn forget e -y -m $spm --adapter chatted >'$tmp/none' && \
        '$rv' learn run -m $spm --adapter chatted --json"
python3 - "$RUVLLM_STATE_DIR"/*/default >"$tmp/held" <<'END' &
import fcntl, sys, time
f = open(sys.argv[1] + "/feedback.db-training.lock", "w")
fcntl.flock(f, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
END
holder=$!
until grep -q held "$tmp/held"; do sleep 0.1; done
"$rv" learn run -m $spm >"$tmp/out" 2>"$tmp/err" &
runner=$!
until grep -q waiting "$tmp/err"; do sleep 0.1; done
kill -INT "$runner"
wait "$runner"
verdict "one training at a time" 130 $? - "another process is training this; waiting"
kill "$holder"
known='weights alone answer 1 of 1, and 2 of 2 other wordings; 1 of 1 neighbours unchanged'
check "training ends with what it saw" 0 "^asked again: $known$" "" \
    "$rv" teach $spm -q "Who is Vor?" -a "A smith." --background --adapter trained
check "what is trained" 0 "^1 correction, trained$" - "$rv" learn status -m $spm --adapter trained
"$rv" learn rollback 0 -m $spm --adapter trained >"$tmp/none" 2>&1
check "its training rolled back" 0 "^1 correction, training rolled back$" - \
    "$rv" learn status -m $spm --adapter trained
verdict "said of the lesson too" 0 0 "A smith.  (generation 1, rolled back)$" ""
"$rv" teach $spm -q "Who is Vex?" -a "A baker." --adapter trained >"$tmp/none" 2>&1
check "beside another lesson" 0 "^2 corrections, 1 not trained yet, training of 1 rolled back$" - \
    "$rv" learn status -m $spm --adapter trained
"$rv" learn undo -m $spm --adapter trained >"$tmp/none" 2>&1
"$rv" learn undo -m $spm --adapter trained >"$tmp/none" 2>&1
check "until that is taken back" 0 "^1 correction, trained$" - \
    "$rv" learn status -m $spm --adapter trained
"$rv" learn undo -m $spm --adapter trained >"$tmp/none" 2>&1
check "an undone lesson in an adapter" 0 "^Adapters that were trained on 1 of 1 are erased" - \
    "$rv" learn forget smith -m $spm --adapter trained
check "status says what became of it" 0 "^generation 1 .*erased, because" - \
    "$rv" learn status -m $spm --adapter trained
check "merging what is not there" 1 - "there is no generation 7" "$rv" learn merge 7 8 -m $spm
check "merging one with itself" 1 - "two different generations" "$rv" learn merge 1 1 -m $spm

# --- pausing, going back
check "pause" 0 "paused until 'learn run'" - "$rv" learn pause -m $spm
check "status says so" 0 '"paused":true' - "$rv" learn status -m $spm --json
check "no generation to go back from" 1 - "no generation" "$rv" learn rollback -m $spm
check "a generation that is a word" 2 - "must be a number" "$rv" learn rollback x -m $spm

# --- a state that cannot be written, or read
before=$(records)
if [ "$(id -u)" = 0 ]; then
    n=$((n + 1))
    echo "ok $n # SKIP root may write anywhere"
else
    chmod -R a-w "$RUVLLM_STATE_DIR"
    check "teaching into a read-only state" 1 - "ruvllm: " "$rv" teach $spm -q "$ask" -a "red"
    check "running beside one" 0 "" "takes no part\|^$" "$rv" run $spm "$ask" --greedy -n 8
    chmod -R u+w "$RUVLLM_STATE_DIR"
fi
[ "$before" = "$(records)" ]
verdict "and the log is as it was" 0 $? "" ""
: >"$tmp/file"
RUVLLM_STATE_DIR="$tmp/file/state" check "a state directory that cannot be made" 1 - "ruvllm: " \
    "$rv" teach $spm -q "$ask" -a "red"
for place in "$tmp/file" "$tmp/file/state" /proc/nope; do
    RUVLLM_STATE_DIR="$place" check "run warns of a state directory that cannot be used" 0 "" \
        "what was learned takes no part: $place" "$rv" run $spm "$ask" --greedy -n 8
    RUVLLM_STATE_DIR="$place" check "status says so, not that nothing was taught" 1 - \
        "^ruvllm: $place" "$rv" learn status -m $spm
done
RUVLLM_STATE_DIR="$tmp/not/yet/" check "one that is merely not there holds nothing" 0 \
    "Nothing was taught" - "$rv" learn status -m $spm
check "and is not made by that" 1 - - test -e "$tmp/not"

# --- a log that was lost
lost=$(echo "$RUVLLM_STATE_DIR"/*)/lost
"$rv" teach $spm -q "$ask" -a "red" --adapter lost >"$tmp/none" 2>&1
check "nothing is lost yet" 0 '^{"records":1,"whole":true,"damaged":\[\]}$' - \
    "$rv" learn log verify -m $spm --adapter lost --json
head -c 3000 /dev/zero | tr '\0' x |
    dd of="$lost/feedback.db" bs=1 seek=4096 conv=notrunc 2>"$tmp/none"
check "a damaged database is set aside" 1 - "kept as .*/lost/feedback.db.damaged-1" \
    "$rv" learn status -m $spm --adapter lost
check "status mentions it from then on" 0 "set aside.*/lost/feedback.db.damaged-1 " - \
    "$rv" learn status -m $spm --adapter lost
check "so does log verify" 0 "set aside.*/lost/feedback.db.damaged-1 " - \
    "$rv" learn log verify -m $spm --adapter lost
check "and JSON" 0 '"damaged":\["[^"]*/lost/feedback.db.damaged-1"\]}$' - \
    "$rv" learn status -m $spm --adapter lost --json
rm "$lost"/feedback.db*
: >"$lost/generation-000001.gguf"
check "an empty log beside an adapter" 0 "the log is empty, though 1 adapter that it trained" - \
    "$rv" learn status -m $spm --adapter lost
check "is not merely whole" 0 "the log is empty, though 1 adapter that it trained" - \
    "$rv" learn log verify -m $spm --adapter lost
check "also as JSON" 0 '^{"records":0,"whole":true,"damaged":\[\],"log_lost":true}$' - \
    "$rv" learn log verify -m $spm --adapter lost --json

says "a state directory by option" "teal" \
    "$rv" run $spm "$ask" --greedy -n 8 --adapter work --state-dir "$RUVLLM_STATE_DIR"
echo "1..$n"
