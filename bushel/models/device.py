"""The device that models run on: chosen once, when this is first imported, and nowhere else.

It is MLX's own choice, or what BUSHEL_DEVICE says.
"""

from __future__ import annotations

import os

import mlx.core as mx

from bushel.core import ModelError

VARIABLE = "BUSHEL_DEVICE"
_DEVICES = {"cpu": mx.cpu, "gpu": mx.gpu}


def unavailable(name: str) -> str | None:
    """Why a device of this name cannot be used; None if it can."""
    if name not in _DEVICES:
        return f"{VARIABLE} must be cpu or gpu, not {name!r}."
    if not mx.is_available(_DEVICES[name]):
        return f"{VARIABLE} is {name}, and MLX finds none on this machine."
    return None


def use_cpu() -> None:
    """For a process that runs no model: a GPU need not even be woken."""
    mx.set_default_device(mx.cpu)


def require_device() -> None:
    """Raise a ModelError if what was asked for is not there."""
    if _wrong is not None:
        raise ModelError(_wrong)


_asked = os.environ.get(VARIABLE, "")
_wrong = unavailable(_asked) if _asked else None
if _asked and _wrong is None:
    mx.set_default_device(_DEVICES[_asked])

ON_CPU = mx.default_device() == mx.cpu
ON_CUDA = not ON_CPU and not mx.metal.is_available()
