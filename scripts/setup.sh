#!/usr/bin/env bash
# Builds .venv for one MLX backend, with what tests and lint need if asked to:
#   scripts/setup.sh metal|cpu|cuda13 [dev]
set -euo pipefail
cd "$(dirname "$0")/.."

mlx=${1:?usage: scripts/setup.sh metal|cpu|cuda13 [dev]}
tools=${2:-}
python=${PYTHON:-python3}
venv=.venv

case "$(uname -s)-$mlx" in
    Darwin-metal) extras=$tools ;;
    Linux-cpu | Linux-cuda13) extras=$mlx${tools:+,$tools} ;;
    *) echo "setup: MLX=$mlx is not available on $(uname -s)" >&2; exit 2 ;;
esac

# The Linux backends overwrite each other's files, so a change of backend starts afresh.
if [ -e $venv/.mlx ] && [ "$(cat $venv/.mlx)" != "$mlx" ]; then
    rm -rf $venv
fi

if [ ! -x $venv/bin/python ]; then
    if ! command -v "$python" > /dev/null; then
        echo "setup: there is no $python here; name one: PYTHON=python3.12 make setup" >&2
        exit 2
    fi
    "$python" -I bushel/core/platform_support.py || exit 2
    "$python" -m venv $venv
fi
echo "$mlx" > $venv/.mlx

# A .venv made by uv has no pip.
$venv/bin/python -m pip --version > /dev/null 2>&1 || $venv/bin/python -m ensurepip > /dev/null
# The pip that comes with Python 3.11 takes half as long again: it looks at every file of every
# version that each package ever had. Of what is installed little is ever imported: compiling all
# of it takes half a minute.
$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade pip
$venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile --editable ".${extras:+[$extras]}"

if [ "$mlx" = cpu ]; then
    scripts/libraries.sh $tools
fi
