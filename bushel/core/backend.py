"""Whether MLX can be imported, and what to install where it cannot."""

from __future__ import annotations

import importlib
import platform
import sys

from bushel.core import platform_support
from bushel.core.errors import BackendError, public_message

# MLX's wheel for Linux has no backend of its own; an extra brings one, as Bushel's do.
_ON_LINUX = 'pip install "mlx[cpu]", or "mlx[cuda13]" for an NVIDIA GPU; in a clone, make setup.'
_ON_A_MAC = "pip install --force-reinstall mlx mlx-metal; in a clone, make clean setup."


def require_backend() -> None:
    """Import MLX. BackendError, in one line, if it cannot be."""
    try:
        importlib.import_module("mlx.core")
    except ImportError as error:
        on_a_mac = platform.system() == "Darwin"
        advice = (platform_support.mac() or _ON_A_MAC) if on_a_mac else _ON_LINUX
        reason = public_message(error)
        raise BackendError(f"MLX has no backend here ({reason}): {advice}") from None


def main() -> int:
    """`python -m bushel.core.backend`: for those who must not import MLX themselves."""
    try:
        require_backend()
    except BackendError as error:
        print(error)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
