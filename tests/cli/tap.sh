# What the command line tests share: sourced by them, from the repository root. RUVLLM names the
# program (./ruvllm).
rv=${RUVLLM:-./ruvllm}
spm=tests/gguf/llama-spm.gguf
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# what the user of this machine taught has no part in a test
RUVLLM_STATE_DIR=$tmp/state
export RUVLLM_STATE_DIR
n=0

# check NAME STATUS OUT_PATTERN ERR_PATTERN COMMAND...: exit status, and a grep pattern each for
# standard output and error ("-": must be empty, "": anything)
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
