#!/usr/bin/env bash
# MLX's CPU build has g++ compile what it fuses: 0.7 s for each kind of operation on a machine that
# has not seen it, nearly all of it for one header. This compiles the header once (1.5 s, 50 MB),
# which leaves 0.2 s. Nothing depends on it. g++ ignores what another version of it has made, but
# not what was made for another MLX: so it is made anew for each.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(echo .venv/lib/python3*/site-packages)
header=$packages/mlx/include/mlx/backend/cpu/compiled_preamble.h
stamp=.venv/.preamble
if [ "$(uname -s)" != Linux ] || [ ! -e "$header" ] || ! command -v g++ > /dev/null; then
    exit 0
fi

made_for="$(g++ -dumpfullversion) $(cd "$packages" && echo mlx*.dist-info)"
if [ "$(cat $stamp 2> /dev/null)" = "$made_for" ]; then exit 0; fi
rm -f "$header.gch"
# The options are MLX's own; with others it would not be used.
if g++ -std=c++17 -O3 -Wall -fPIC -shared -I "$packages/mlx/include" \
    "$header" -o "$header.new" 2> /dev/null; then
    mv "$header.new" "$header.gch"
    echo "$made_for" > $stamp
fi
