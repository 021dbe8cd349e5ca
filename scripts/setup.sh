#!/usr/bin/env bash
# Builds .venv for one MLX backend: scripts/setup.sh metal|cpu|cuda13
set -euo pipefail
cd "$(dirname "$0")/.."

mlx=${1:?usage: scripts/setup.sh metal|cpu|cuda13}
python=${PYTHON:-python3}
venv=.venv

case "$(uname -s)-$mlx" in
    Darwin-metal) extras=dev ;;
    Linux-cpu | Linux-cuda13) extras=dev,$mlx ;;
    *) echo "setup: MLX=$mlx is not available on $(uname -s)" >&2; exit 2 ;;
esac

# The Linux backends overwrite each other's files, so a change of backend starts afresh.
if [ -e $venv/.mlx ] && [ "$(cat $venv/.mlx)" != "$mlx" ]; then
    rm -rf $venv
fi

if [ ! -x $venv/bin/python ]; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
        echo "setup: $python is older than 3.11; name a newer one: PYTHON=python3.12 make setup" >&2
        exit 2
    }
    "$python" -m venv $venv
fi
echo "$mlx" > $venv/.mlx

# A .venv made by uv has no pip.
$venv/bin/python -m pip --version > /dev/null 2>&1 || $venv/bin/python -m ensurepip > /dev/null
# The pip that comes with Python 3.11 takes half as long again: it looks at every file of every
# version that each package ever had. Of what is installed little is ever imported: compiling all
# of it takes half a minute.
$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade pip
$venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile --editable ".[$extras]"

if [ "$mlx" = cpu ]; then
    scripts/libraries.sh
fi
