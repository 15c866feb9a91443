#!/bin/sh
# `make deb` and `make release`: what is in them runs, needs what it says it needs, and nothing is
# missing. Prints TAP. What needs a program that is not here is skipped.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
log=$tmp/log
n=0
check() { # NAME COMMAND...
    name=$1
    n=$((n + 1))
    shift
    if "$@" >"$log" 2>&1; then echo "ok $n - $name"; else
        echo "not ok $n - $name"
        tail -n 20 "$log" | sed 's/^/# /'
    fi
}
skip() {
    n=$((n + 1))
    echo "ok $n # SKIP $1"
}
# slow_install.sh makes the same files at the same time.
make_() { MAKEFLAGS='' flock build/install.lock make --no-print-directory "$@"; }
version=$(awk '/define RV_VERSION_(MAJOR|MINOR|PATCH) / { v = v s $3; s = "." } END { print v }' \
    include/ruvllm.h)

runs() { # PROGRAM: says its version, and reads a model
    "$1" --version | grep -F "$version" && "$1" info tests/gguf/llama-spm.gguf \
        && "$1" run tests/gguf/llama-spm.gguf hi -n 1 --greedy
}
holds() { # FOLDER FILE...
    folder=$1
    shift
    for file; do [ -s "$folder/$file" ] || { echo "$file is missing" && return 1; }; done
}
depends_on() { # DEB: packages that are installed here, libc among them
    dpkg-deb -f "$1" Depends | tr ',' '\n' | awk '{ print $1 }' >"$tmp/depends"
    grep -qx libc6 "$tmp/depends" && grep -q sqlite "$tmp/depends" || return 1
    while read -r package; do dpkg-query -W "$package" >/dev/null || return 1; done <"$tmp/depends"
}
unit_is_right() { # FOLDER: systemd reads it; the program of the package stands where it says
    sed "s|/usr/bin/ruvllm|$1/usr/bin/ruvllm|" "$1/lib/systemd/system/ruvllm.service" \
        >"$tmp/ruvllm.service"
    sed -i '/^Documentation=/d' "$tmp/ruvllm.service"
    systemd-analyze verify "$tmp/ruvllm.service" 2>&1 | tee "$tmp/said" | cat
    ! grep -q "$tmp/ruvllm.service\|^ruvllm.service" "$tmp/said"
}
settings_are_read() { # FOLDER
    "$1/usr/bin/ruvllm" serve --check --config "$1/etc/ruvllm/ruvllm.toml" \
        | grep 'model = "smollm2"'
}

if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
    check "make deb" make_ deb
    deb=$(ls build/deb/ruvllm_"$version"_*.deb)
    check "it can be unpacked" dpkg-deb -x "$deb" "$tmp/deb"
    check "everything is in it" holds "$tmp/deb" usr/bin/ruvllm usr/include/ruvllm.h \
        usr/share/man/man1/ruvllm.1.gz usr/share/doc/ruvllm/copyright etc/ruvllm/ruvllm.toml \
        lib/systemd/system/ruvllm.service usr/share/doc/ruvllm/grafana/ruvllm.json
    check "its program runs" runs "$tmp/deb/usr/bin/ruvllm"
    check "it names what it needs" depends_on "$deb"
    check "its settings are read" settings_are_read "$tmp/deb"
    check "files belong to root" sh -c "! dpkg-deb -c '$deb' | grep -v ' root/root '"
    if command -v systemd-analyze >/dev/null; then
        check "its service is one" unit_is_right "$tmp/deb"
    else
        skip "systemd-analyze is not here"
    fi
else
    skip "dpkg-deb is not here"
fi
check "make release" make_ release
archive=$(ls build/release/ruvllm-"$version"-*.tar.gz)
check "its sum is right" sh -c "cd build/release && sha256sum -c '$(basename "$archive").sha256'"
check "it can be unpacked" tar -xzf "$archive" -C "$tmp"
folder=$(echo "$tmp"/ruvllm-"$version"-*)
check "everything is in it" holds "$folder" ruvllm README.md LICENSE-MIT LICENSE-APACHE \
    docs/SERVER.md packaging/ruvllm.1 packaging/ruvllm.service
check "its program runs" runs "$folder/ruvllm"
check "and needs the C library alone" sh -c "! ldd '$folder/ruvllm' | grep -v \
    'linux-vdso\|libc\.so\|libm\.so\|ld-linux'"
echo "1..$n"
