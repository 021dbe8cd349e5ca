#!/usr/bin/env bash
# Runs a command with the libraries preloaded that scripts/libraries.sh found, and as it is
# otherwise:
#   scripts/env.sh .venv/bin/python -m bushel serve
#   scripts/env.sh --tests .venv/bin/python -m pytest
# shellcheck disable=SC1090,SC2154
set -euo pipefail

wanted=(openblas)
if [ "${1:-}" = --tests ]; then
    wanted+=(jemalloc)
    # Tests run in several processes at once, which would otherwise fight over the cores.
    export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
    shift
fi

env_file=$(dirname "$0")/../.venv/libraries.env
if [ -e "$env_file" ]; then
    . "$env_file"
    for name in "${wanted[@]}"; do
        library=${name}_library library_path=${name}_library_path
        if [ -n "${!library:-}" ]; then
            export LD_PRELOAD=${!library}${LD_PRELOAD:+:$LD_PRELOAD}
        fi
        if [ -n "${!library_path:-}" ]; then
            export LD_LIBRARY_PATH=${!library_path}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        fi
    done
fi
exec "$@"
