#!/bin/sh
# Where the program keeps its files, who may read them, and what it refuses to overwrite. Prints
# TAP.
set -u
. tests/cli/tap.sh
unset RUVLLM_STATE_DIR RUVLLM_CACHE_DIR XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME
rv=$(cd "$(dirname "$rv")" && pwd)/$(basename "$rv")
here=$(pwd)

teach() { "$rv" teach "$here/$spm" -q "What is Zorblat's colour?" -a purple; }
holds() { # NAME DIR: something was learned below DIR
    n=$((n + 1))
    if find "$2" -name feedback.db | grep -q .; then echo "ok $n - $1"; else
        echo "not ok $n - $1"
        find "$tmp" -name feedback.db | sed 's/^/# /'
    fi
}

# --- places
HOME=$tmp/home
export HOME
check "the default" 0 "" "" teach
holds "is below the home directory" "$HOME/.local/share/ruvllm"
XDG_DATA_HOME=$tmp/data check "XDG_DATA_HOME" 0 "" "" teach
holds "is honoured" "$tmp/data/ruvllm"
XDG_DATA_HOME=relative check "a relative one" 0 "" "" teach
check "is not" 1 - - test -e relative
RUVLLM_STATE_DIR=$tmp/own XDG_DATA_HOME=$tmp/other check "RUVLLM_STATE_DIR comes first" 0 "" "" \
    teach
holds "and has it" "$tmp/own"
check "XDG_DATA_HOME has nothing then" 1 - - test -e "$tmp/other"
mkdir -p "$tmp/cache/ruvllm/models" "$tmp/own-cache/models"
cp $spm "$tmp/cache/ruvllm/models/Tiny-Q4.gguf"
cp $spm "$tmp/own-cache/models/big-00001-of-00002.gguf"
cp $spm "$tmp/own-cache/models/big-00002-of-00002.gguf"
cp $spm "$tmp/own-cache/models/$(printf 'a\nsmollm2  forged\033[31m').gguf"
cp -r tests/golden/qwen3 "$tmp/own-cache/models/folder"
mkdir "$tmp/own-cache/models/tmp-1-2" "$tmp/own-cache/models/nothing"
XDG_CACHE_HOME=$tmp/cache check "a file put into XDG_CACHE_HOME is listed" 0 "^Tiny-Q4  .* here$" \
    - "$rv" list
XDG_CACHE_HOME=$tmp/cache check "and used by its name, in letters of either case" 0 "parameters" - \
    "$rv" info tiny-q4
XDG_CACHE_HOME=$tmp/cache check "or its file name" 0 "parameters" - "$rv" info Tiny-Q4.gguf
RUVLLM_CACHE_DIR=$tmp/own-cache XDG_CACHE_HOME=$tmp/cache check "RUVLLM_CACHE_DIR comes first" 0 \
    "^folder  .* here$" - "$rv" list
[ "$(grep -c "^big  " "$tmp/out")" = 1 ] && ! grep -q "00002-of\|tmp-1\|nothing" "$tmp/out"
verdict "parts of a split file and other folders are not listed" 0 $? "" -
[ "$(wc -l <"$tmp/out")" = 5 ] && ! grep -q "$(printf '\033')" "$tmp/out"
verdict "a file name forges no line and no colour" 0 $? "" -
RUVLLM_CACHE_DIR=$tmp/own-cache check "a folder by its name" 0 "qwen3" - "$rv" info folder
check "a name that is a path is not looked up in the cache" 1 - "no model" \
    "$rv" info "../own-cache/models/folder" --cache-dir "$tmp/own-cache"
check "list without a cache" 0 "not here yet" - "$rv" list --cache-dir "$tmp/none"

# --- nowhere
check "without HOME no other home is guessed" 1 - "HOME is not set.*--cache-dir" \
    env -u HOME "$rv" pull smollm2
if [ "$(id -u)" = 0 ]; then
    open=$(mktemp -d -p /tmp) && mkdir "$open/place" && chmod 777 "$open" "$open/place"
    stranger() { # a user without a name, and so without a home
        (cd "$open/place" && env -u HOME python3 -c \
            'import os, sys; os.setuid(54321); os.execv(sys.argv[1], sys.argv[1:])' "$rv" "$@")
    }
    cp $spm "$rv" "$open/place"
    program=$rv rv=$open/place/$(basename "$rv")
    check "no home: nothing is taught" 1 - "HOME is not set.*--state-dir" stranger teach \
        "$(basename $spm)" -q "x y" -a z
    check "nor fetched" 1 - "HOME is not set.*--cache-dir" stranger pull smollm2
    check "but a file runs" 0 "" - stranger run "$(basename $spm)" hi -n 2
    check "and list lists" 0 "smollm2" - stranger list
    [ "$(ls -A "$open/place" | wc -l)" = 2 ]
    verdict "and nothing is left in the current directory" 0 $? "" ""
    rv=$program
    rm -rf "$open"
else
    n=$((n + 1))
    echo "ok $n - no home # SKIP only root can become a user without one"
fi
long=$(head -c 5000 /dev/zero | tr '\0' a)
RUVLLM_STATE_DIR="$tmp/$long" check "a directory that is too long is an error" 1 - "too long" teach
RUVLLM_CACHE_DIR="$tmp/$long" check "of models too" 1 - "too long.*--cache-dir" "$rv" list
RUVLLM_STATE_DIR="$tmp/$long" check "an answer comes, with a warning" 0 "" "too long" \
    "$rv" run "$here/$spm" hi -n 2

# --- rights
umask 022
RUVLLM_STATE_DIR=$tmp/private check "teach" 0 "" "" teach
RUVLLM_STATE_DIR=$tmp/private check "and calibrate, which writes further files" 0 "" "" \
    "$rv" learn run -m "$here/$spm"
find "$tmp/private" -perm /077 >"$tmp/out"
verdict "what is learned is its owner's alone" 0 $? - ""
find "$tmp/private" -name feedback.db -perm 600 >"$tmp/out"
verdict "files have mode 600" 0 $? "feedback.db" ""
chmod -R go+rx "$tmp/private"
RUVLLM_STATE_DIR=$tmp/private check "a state that was open to all" 0 "" "" teach
find "$tmp/private" -name default -perm 700 >"$tmp/out"
verdict "is closed" 0 $? "default" ""

# --- what is not overwritten
cp "$here/$spm" "$tmp/model.gguf"
cp -r "$here/tests/golden/qwen3" "$tmp/model"
weights=$(cd "$tmp/model" && ls ./*.safetensors | head -n 1)
check "tap does not overwrite the model" 1 - \
    "model.gguf: not overwritten: it belongs to the model" \
    "$rv" tap "$tmp/model.gguf" --ids 1,2 -o "$tmp/model.gguf"
ln -s model.gguf "$tmp/link.gguf"
check "not even with --force, nor by another name" 1 - "belongs to the model" \
    "$rv" tap "$tmp/model.gguf" --ids 1,2 -o "$tmp/link.gguf" --force
check "nor a file of its directory" 1 - "belongs to the model" \
    "$rv" tap "$tmp/model" --ids 1,2 -o "$tmp/model/$weights" --force
check "which is whole" 0 - - cmp "$tmp/model.gguf" "$here/$spm"
check "a result" 0 - - "$rv" tap "$tmp/model" --ids 1,2 -o "$tmp/result"
check "is not overwritten" 1 - "it exists; --force replaces it" \
    "$rv" tap "$tmp/model" --ids 1,2,3 -o "$tmp/result"
check "but with --force" 0 - - "$rv" tap "$tmp/model" --ids 1,2,3 -o "$tmp/result" --force
cp "$here/$spm" "$tmp/again.gguf"
RUVLLM_STATE_DIR=$tmp/private check "learn export does not overwrite the model" 1 - \
    "belongs to the model" "$rv" learn export "$tmp/again.gguf" -m "$tmp/again.gguf" --force
RUVLLM_STATE_DIR=$tmp/private check "nor another file" 1 - "it exists" \
    "$rv" learn export "$tmp/model.gguf" -m "$tmp/again.gguf"
check "and both are whole" 0 - - cmp "$tmp/model.gguf" "$tmp/again.gguf"
RUVLLM_STATE_DIR=$tmp/private check "an export" 0 "Written" - \
    "$rv" learn export "$tmp/new.gguf" -m "$tmp/again.gguf"
find "$tmp/new.gguf" -perm 644 >"$tmp/out"
verdict "has the rights the user's umask gives" 0 $? "new.gguf" ""
RUVLLM_STATE_DIR=$tmp/private check "is replaced" 0 "Written" - \
    "$rv" learn export "$tmp/new.gguf" -m "$tmp/again.gguf" --force

echo "1..$n"
