#!/bin/sh
# The kernels that `make CUDA=1` embeds stay in the library of a tree until `make CUDA=`. The
# compiler for them is a script. Prints TAP.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0
image=$tmp/build/src/backend/cuda/image.o
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES CUDA 2>/dev/null

cat >"$tmp/nvcc" <<'END'
#!/bin/sh
[ "$1" = --version ] && { echo "release 12.4, V12.4.1"; exit; }
while [ "$1" != -o ]; do shift; done
echo "kernels by a script" >"$2"
END
chmod +x "$tmp/nvcc"

# case_of NAME PATTERN HAS [VARIABLE=VALUE]: makes it, which prints PATTERN ("": nothing); are the
# kernels in it?
case_of() {
    n=$((n + 1)) name=$1 pattern=$2 has=$3
    shift 3
    make BUILD="$tmp/build" "$@" "$image" >"$tmp/out" 2>&1
    status=$?
    if grep -q "kernels by a script" "$image"; then found=yes; else found=no; fi
    if [ $status = 0 ] && [ $found = "$has" ] &&
        if [ "$pattern" ]; then grep -q "$pattern" "$tmp/out"; else ! grep -q "  CC" "$tmp/out"; fi
    then echo "ok $n - $name"; else echo "not ok $n - $name"; sed 's/^/# /' "$tmp/out"; fi
}

export NVCC="$tmp/nvcc"
case_of "without" "  CC .*image.c" no
case_of "with" "  CC .*image.c" yes CUDA=1
case_of "again: nothing is compiled" "" yes CUDA=1
case_of "the tree remembers them" "" yes
case_of "without them from now on" "  CC .*image.c" no CUDA=
case_of "again: nothing is compiled" "" no
case_of "0 is without, too" "" no CUDA=0
case_of "with, a second time" "  CC .*image.c" yes CUDA=1
echo "1..$n"
