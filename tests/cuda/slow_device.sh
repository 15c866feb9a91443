#!/bin/sh
# The program on a GPU, as its users meet it: a program with the driver of fake_driver.cpp, which
# computes on the host. RUVLLM_TEST_CUDA=system: the program on a real device (make CUDA=1), without
# what only that driver can be told. Prints TAP.
set -u
. tests/cli/tap.sh
card="fake device"
if [ "${RUVLLM_TEST_CUDA-}" = system ]; then
    card="NVIDIA .*"
else
    dir=${BUILD:-build}/tests/cuda
    if [ ! -x "$dir/ruvllm" ]; then
        echo "1..0 # SKIP $dir/ruvllm is not built"
        exit 0
    fi
    rv=$dir/ruvllm
    LD_LIBRARY_PATH=$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
options="--device cuda --exact -t 1 --ctx 64"

# --- the same answer whatever computes it
"$rv" run $spm hi -n 4 --greedy --exact -t 1 >"$tmp/cpu" 2>"$tmp/err"
verdict "run: on the CPU" 0 $? "" -
"$rv" run $spm hi -n 4 --greedy $options >"$tmp/gpu" 2>"$tmp/err"
verdict "run: on the GPU" 0 $? "" -
"$rv" run $spm hi -n 4 --greedy $options --gpu-layers 1 >"$tmp/both" 2>"$tmp/err"
verdict "run: on both, as asked for" 0 $? "" -
[ -s "$tmp/cpu" ] && cmp -s "$tmp/cpu" "$tmp/gpu" && cmp -s "$tmp/cpu" "$tmp/both"
verdict "run: the same text" 0 $? "" ""

# --- in the default mode, on a large card and on a small one
"$rv" run $spm hi -n 4 --greedy --device cuda -t 1 --ctx 64 >"$tmp/large" 2>"$tmp/err"
verdict "run: in the default mode" 0 $? "" -
if [ "$card" = "fake device" ]; then
    FAKE_DEVICE="8.6 101376"
    export FAKE_DEVICE
    "$rv" run $spm hi -n 4 --greedy --device cuda -t 1 --ctx 64 >"$tmp/small" 2>"$tmp/err"
    verdict "run: on a card with less shared memory" 0 $? "" -
    [ -s "$tmp/large" ] && cmp -s "$tmp/large" "$tmp/small"
    verdict "run: the same text there" 0 $? "" ""
    FAKE_DEVICE="7.5 65536"
    check "run: an old card" 1 - "compute capability is 7.5, 8.0 or later" "$rv" run $spm hi -n 4 \
        --device cuda
    check "run: an old card, a GPU if it can be used" 0 . \
        "warning: computing on the CPU, not on a GPU: .* compute capability is 7.5" \
        "$rv" run $spm hi -n 2 --greedy --device auto -t 1 --ctx 64
    unset FAKE_DEVICE
    check "run: a GPU if it can be used" 0 . - "$rv" run $spm hi -n 2 --greedy --device auto -t 1 \
        --ctx 64
    check "run: an old driver" 1 - "knows CUDA 11.4, this program needs 12.0: install a newer" \
        env FAKE_VERSION=11040 "$rv" run $spm hi -n 2 --device cuda
    check "run: an old driver, a GPU if it can be used" 0 . \
        "warning: computing on the CPU, not on a GPU: .* knows CUDA 11.4" \
        env FAKE_VERSION=11040 "$rv" run $spm hi -n 2 --greedy --device auto -t 1 --ctx 64
    check "run: a driver that cannot compile for the card" 1 - "is too old to compile the kernels" \
        env FAKE_LOADING=222 "$rv" run $spm hi -n 2 --device cuda
    check "run: another program has the card" 1 - "device 0 cannot be used: another program has" \
        env FAKE_OPENING=46 "$rv" run $spm hi -n 2 --device cuda
    mkdir "$tmp/none" && : >"$tmp/none/libcuda.so.1" # hides what the machine has
    check "run: no driver, a GPU if it can be used" 0 . - env LD_LIBRARY_PATH="$tmp/none" \
        "$rv" run $spm hi -n 2 --greedy --device auto -t 1 --ctx 64
    check "run: no driver, and more messages" 0 . \
        "info: computing on the CPU, not on a GPU: no CUDA driver" \
        env LD_LIBRARY_PATH="$tmp/none" "$rv" run $spm hi -n 2 --greedy --device auto -t 1 \
        --ctx 64 -v
fi

# --- what computes, and why
explain() { # NAME LINE COMMAND...: of what is printed instead of an answer
    label=$1 line=$2
    shift 2
    check "explain: $label" 0 "$line" "" "$@" --explain-backend --no-learn -t 1 --ctx 64
}
explain "a card" "^device        cuda, $card, compute .* GiB free: asked for$" "$rv" run $spm \
    --device cuda
explain "all layers fit" "^layers        all 2 on the GPU: they fit; with 64 tokens they take " \
    "$rv" run $spm --device cuda
! matches "^instructions" "$tmp/out"
verdict "explain: the CPU has no products" 0 $? \
    "^weights       f32, packed: in panels of 8 outputs, two parts of 16 bits a weight$" ""
explain "exact" "^activations   f32: exact$" "$rv" run $spm --device cuda --exact
explain "tensor cores" "^weights       q4_k, packed: .* tensor cores" "$rv" run \
    tests/gguf/q-q4_k.gguf --device cuda
explain "layers on both sides" \
    "^layers        the last 1 of 2 on the GPU, the others on the CPU: asked for; with 64" \
    "$rv" run $spm --device cuda --gpu-layers 1
matches "^instructions" "$tmp/out"
verdict "explain: products on both sides" 0 $? \
    "^weights       f32, on the GPU packed, on the CPU packed: on the GPU in panels of 8 outputs" ""
explain "a card that was found" "^device        cuda, .*: device auto found a GPU" "$rv" run $spm \
    --device auto
if [ "$card" = "fake device" ]; then
    explain "no driver" "^device        cpu: no CUDA driver" env LD_LIBRARY_PATH="$tmp/none" \
        "$rv" run $spm --device auto
    explain "an old driver" "^device        cpu: .* knows CUDA 11.4, this program needs 12.0" \
        env FAKE_VERSION=11040 "$rv" run $spm --device auto
    explain "a card that others have" "^device        cpu: .* cannot be used: another program has" \
        env FAKE_OPENING=46 "$rv" run $spm --device auto
    explain "nothing fits" "^layers        all 2 on the CPU: .* MiB of device memory are missing" \
        env FAKE_DEVICE_MEMORY=4000000 "$rv" run $spm --exact --device auto
    # memory for one of the two layers: what is missing of it, and a little more each time
    holds() {
        FAKE_DEVICE_MEMORY=$1 "$rv" run $spm --explain-backend --no-learn $options >"$tmp/out" \
            2>"$tmp/err"
    }
    between=4000000
    holds $between
    missing=$(sed -n 's/.* used: \([0-9.]*\) MiB are missing.*/\1/p' "$tmp/err")
    between=$(awk "BEGIN { printf \"%d\", $between + $missing * 1048576 - 100000 }")
    for try in 1 2 3 4 5 6 7 8 9 10 11 12; do
        holds $between && break
        between=$((between + 40000))
    done
    explain "one of two layers fits" \
        "^layers        the last 1 of 2 .*: .* MiB .* are missing .* (measured: the GPU reads " \
        env FAKE_DEVICE_MEMORY=$between "$rv" run $spm --exact --device cuda
    explain "the CPU is faster than this card" \
        "^layers        all 2 on the CPU: .* missing .*, .* with 1 of them on the GPU (measured" \
        env FAKE_DEVICE_MEMORY=$between "$rv" run $spm --exact --device auto
fi

# --- what is measured says what it ran on
check "bench: one of two layers" 0 "^gpu      $card, 1 of 2 layers" - "$rv" bench $spm -p 4 \
    -n 2 -r 1 $options --gpu-layers 1
! matches "of the rate of copies" "$tmp/out"
verdict "bench: a share of weights that lie on both sides" 0 $? "" ""
check "bench: share of the card's rate" 0 "^tg2 reads weights at .* % of the rate of copies" - \
    "$rv" bench $spm -p 0 -n 2 -r 1 $options
"$rv" bench $spm -p 0 -n 2 -r 1 $options --json >"$tmp/out" 2>"$tmp/err"
matches '"gpu_share": [0-9.]*,' "$tmp/out" && matches '"gpu_memory_used": [1-9]' "$tmp/out" &&
    matches '"gpu_copy_gbps": [0-9.]*,' "$tmp/out"
verdict "bench: the card in JSON" 0 $? "" ""
"$rv" bench $spm -p 4 -n 0 -r 1 $options --json >"$tmp/out" 2>"$tmp/err"
matches '"n_gpu_layers": 2' "$tmp/out" && matches "\"gpu_info\": \"$card\"" "$tmp/out"
verdict "bench: all layers" 0 $? '"backends": "CUDA"' -

# --- memory is short, and other mistakes
if [ "$card" = "fake device" ]; then
    FAKE_DEVICE_MEMORY=4000000
    export FAKE_DEVICE_MEMORY
    check "run: nothing fits" 1 - \
        "1 of 2 layers with 64 tokens need .* are missing; not one layer fits; device cpu does" \
        "$rv" run $spm hi -n 2 $options
    "$rv" run $spm hi -n 4 --greedy --device auto --exact -t 1 --ctx 64 >"$tmp/auto" 2>"$tmp/err"
    verdict "run: nothing fits, any device will do" 0 $? "" "all 2 layers are computed on the CPU"
    cmp -s "$tmp/cpu" "$tmp/auto"
    verdict "run: the same text by the CPU" 0 $? "" ""
    check "bench: two layers do not fit" 1 - "2 of 2 layers with .* tokens need .* are missing" \
        "$rv" bench $spm -p 4 -n 2 -r 1 $options --gpu-layers 2
    unset FAKE_DEVICE_MEMORY
    check "run: others take the memory meanwhile" 1 - \
        "2 of 2 layers with 64 tokens need .* are missing; not one layer fits; device cpu does" \
        env FAKE_LEFT_THEN=4096 "$rv" run $spm hi -n 2 $options
fi
check "run: no such device" 1 - "there is no CUDA device 99" "$rv" run $spm hi --device cuda:99
check "run: layers on a GPU without one" 1 - "gpu-layers 1: the device is the CPU" "$rv" run $spm \
    hi --gpu-layers 1
check "run: a KV cache of another type" 1 - "no KV cache of type tiered: f32, f16 and q8 can be" \
    "$rv" run $spm hi -n 2 --device cuda -t 1 --ctx 64 --kv tiered
check "serve: wrong layers" 2 - "gpu-layers must be" "$rv" serve $spm --gpu-layers 0

# --- training: not with layers on both sides, and nothing is computed for it
check "teach: a lesson" 0 "teal" "" "$rv" teach $spm -q "What is Nim's colour?" -a teal
check "learn run: layers on both sides" 1 - "training needs all layers of the model on one device" \
    "$rv" learn run -m $spm $options --gpu-layers 1

echo "1..$n"
