#!/usr/bin/env bash
# Finds or fetches OpenBLAS for the CPU backend and writes .venv/openblas.env, which
# scripts/env.sh reads. Needs no root; nothing depends on it, so a failure is one line and
# exit 0. MLX's CPU wheel links the reference BLAS: fp32 matmul 1024³ on x86-64 ran at
# 1.8 to 3.0 GFLOP/s with it and at 14 to 28 with OpenBLAS (three pairs, 7 to 9 times).
set -euo pipefail
cd "$(dirname "$0")/.."

dest=$PWD/.venv/openblas
env_file=$PWD/.venv/openblas.env
debian_lib=usr/lib/$(uname -m)-linux-gnu
rm -f "$env_file"

skip() {
    echo "openblas: $1; fp32 matmul on the CPU stays slow. To try again: scripts/openblas.sh"
    exit 0
}

# The system's library before the one fetched earlier.
find_library() {
    local folder
    for folder in /$debian_lib/openblas-pthread /$debian_lib /usr/lib64 \
        "$dest/$debian_lib/openblas-pthread"; do
        if [ -e "$folder/libopenblas.so.0" ]; then
            echo "$folder/libopenblas.so.0"
            return
        fi
    done
}

# Downloads a Debian package and unpacks it under $dest.
fetch() {
    if ! command -v apt-get || ! command -v dpkg; then return 1; fi > /dev/null
    (
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        cd "$work"
        apt="timeout 120 apt-get -q -o Acquire::Retries=0 -o Acquire::http::Timeout=10"
        if ! $apt download "$1"; then
            # Slim images ship without package lists, and old lists name files that are gone.
            mkdir -p lists/partial cache/archives/partial
            apt="$apt -o Dir::State::lists=$work/lists -o Dir::Cache=$work/cache"
            $apt update || exit 1
            $apt download "$1" || exit 1
        fi
        dpkg -x ./*.deb "$dest"
    ) > /dev/null 2>&1
}

# Libraries that $library needs and neither the system nor $library_path has.
missing() { LD_LIBRARY_PATH=$library_path ldd "$library" | awk '/not found/ {print $1}'; }

library=$(find_library)
if [ -z "$library" ]; then
    fetch libopenblas0-pthread || skip "libopenblas0-pthread is not here and apt cannot get it"
    library=$(find_library)
    [ -n "$library" ] || skip "libopenblas0-pthread holds no library for $(uname -m)"
fi

library_path=""
if [ -n "$(missing)" ]; then
    library_path=$dest/$debian_lib
    for package in libgfortran5 libquadmath0; do
        [ -z "$(missing)" ] || fetch $package || skip "apt cannot get $package"
    done
fi

# ld.so ignores a library that it cannot preload and says so on stderr.
if ! said=$(LD_LIBRARY_PATH=$library_path LD_PRELOAD=$library \
    .venv/bin/python -c 'import mlx.core' 2>&1) || [ -n "$said" ]; then
    skip "$library does not load"
fi

{
    echo "openblas_library='$library'"
    echo "openblas_library_path='$library_path'"
} > "$env_file"
echo "openblas: $library"
