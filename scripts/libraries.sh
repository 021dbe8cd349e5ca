#!/usr/bin/env bash
# Finds or fetches two of Debian's libraries for the CPU backend and writes .venv/libraries.env,
# which scripts/env.sh reads. Needs no root; nothing depends on them, so a failure is one line and
# exit 0. With `dev` it gets what tests want, too.
#
#   OpenBLAS   MLX's CPU wheel links the reference BLAS: fp32 matmul 1024³ on x86-64 ran at 1.8 to
#              3.0 GFLOP/s with it and at 14 to 28 with OpenBLAS (three pairs, 7 to 9 times).
#   jemalloc   For tests alone: models of a megabyte do little but allocate, from two threads.
#              Nine tests took 58 and 61 s of processor time without it, 44 and 47 with it. What
#              has large buffers maps them anew more often (a join at 2,048 tokens: 1.0 decode
#              steps instead of 0.3), so that servers and benchmarks do without.
set -euo pipefail
cd "$(dirname "$0")/.."

dest=$PWD/.venv/libraries
env_file=$PWD/.venv/libraries.env
debian_lib=usr/lib/$(uname -m)-linux-gnu
: > "$env_file"

# The system's library before the one fetched earlier.
find_library() {
    local folder
    for folder in /$debian_lib/openblas-pthread /$debian_lib /usr/lib64 \
        "$dest/$debian_lib/openblas-pthread" "$dest/$debian_lib"; do
        if [ -e "$folder/$1" ]; then
            echo "$folder/$1"
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

# get NAME FILE PACKAGE MEANING [PACKAGE THAT IT MAY NEED ...]
get() {
    local name=$1 file=$2 package=$3 meaning=$4 needed said
    shift 4
    skip() { echo "$name: $1; $meaning. To try again: scripts/libraries.sh dev"; }
    library=$(find_library "$file")
    if [ -z "$library" ]; then
        fetch "$package" || { skip "$package is not here and apt cannot get it"; return; }
        library=$(find_library "$file")
        [ -n "$library" ] || { skip "$package holds no library for $(uname -m)"; return; }
    fi
    library_path=""
    if [ -n "$(missing)" ]; then
        library_path=$dest/$debian_lib
        for needed in "$@"; do
            [ -z "$(missing)" ] || fetch "$needed" || { skip "apt cannot get $needed"; return; }
        done
    fi
    # ld.so ignores a library that it cannot preload and says so on stderr.
    if ! said=$(LD_LIBRARY_PATH=$library_path LD_PRELOAD=$library \
        .venv/bin/python -c 'import mlx.core' 2>&1) || [ -n "$said" ]; then
        skip "$library does not load"
        return
    fi
    {
        echo "${name}_library='$library'"
        echo "${name}_library_path='$library_path'"
    } >> "$env_file"
    echo "$name: $library"
}

get openblas libopenblas.so.0 libopenblas0-pthread "fp32 matmul on the CPU stays slow" \
    libgfortran5 libquadmath0
if [ "${1:-}" = dev ]; then
    get jemalloc libjemalloc.so.2 libjemalloc2 "tests take a quarter longer"
fi
