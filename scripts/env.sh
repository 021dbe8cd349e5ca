#!/usr/bin/env bash
# Runs a command with OpenBLAS preloaded where scripts/openblas.sh found it, and as it is
# otherwise: scripts/env.sh .venv/bin/python -m pytest
# shellcheck disable=SC1090,SC2154
set -euo pipefail

env_file=$(dirname "$0")/../.venv/openblas.env
if [ -e "$env_file" ]; then
    . "$env_file"
    export LD_PRELOAD=$openblas_library${LD_PRELOAD:+:$LD_PRELOAD}
    # Tests run in two workers, which would otherwise fight over the cores.
    export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
    if [ -n "$openblas_library_path" ]; then
        export LD_LIBRARY_PATH=$openblas_library_path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
fi
exec "$@"
