"""The device that models run on: chosen once, when this is first imported, and nowhere else.

It is MLX's own choice, or what BUSHEL_DEVICE says.

Float32 is multiplied in full. GPUs with matrix units would leave out all but ten bits of a fraction
(TF32), and round a row differently alone and in a batch. MLX reads its variable once in a
process, at the first such product; when this is imported there has been none.

A GPU reports late that it failed, and to whoever asks it for anything next: a chunk of one prompt
may be garbage, and the step of another row raise. Only the first to ask is told. So such an error
says nothing of whose it is, and whatever catches errors to blame somebody for them lets it pass
(`raise_device_fault`), up to where all that was computed is thrown away (`Engine.start_over`).
"""

from __future__ import annotations

import dis
import logging
import os
import re

import mlx.core as mx

from bushel.core import DeviceFault, ModelError

log = logging.getLogger(__name__)

VARIABLE = "BUSHEL_DEVICE"
TF32_VARIABLE = "MLX_ENABLE_TF32"
_DEVICES = {"cpu": mx.cpu, "gpu": mx.gpu}
_LATE = "[METAL] Command buffer execution failed"
# What is raised at once, since an array was too large or a kernel cannot be had, and concerns
# whoever asked for it; it begins like this.
_AT_ONCE = (
    *("[malloc]", "[metal::malloc]", "[metal::Device]", "cudaMalloc"),
    *("Failed to load", "Failed to compile"),
)
_REPORTS = 8  # of one fault, by each stream and queue that was at work


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


def device_fault(error: Exception) -> DeviceFault | None:
    """An error as one of the device; None if it is anybody's own."""
    if isinstance(error, DeviceFault):
        return error
    return DeviceFault(f"The device failed: {error}") if is_late(error, ON_CPU) else None


def raise_device_fault(error: Exception) -> None:
    """If the device failed, raise that; an error of anybody's own is left to the caller."""
    if (fault := device_fault(error)) is not None:
        raise fault from error


def is_late(error: Exception, on_cpu: bool) -> bool:
    """Whether an error may be of something that was computed before; not so on a CPU."""
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    if text.startswith(_LATE):
        return True
    return not on_cpu and not text.startswith(_AT_ONCE) and not _raised_in_python(error)


def _raised_in_python(error: BaseException) -> bool:
    """By a `raise` that was executed, and not by a call out of Python."""
    last = error.__traceback__
    if last is None:
        return True
    while last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code.co_code[last.tb_lasti]
    return dis.opname[code] in ("RAISE_VARARGS", "RERAISE")


def settle() -> None:
    """Wait for the device, and hear all that is left to be told of a fault."""
    for _ in range(_REPORTS):
        try:
            mx.synchronize()
        except RuntimeError as error:
            log.warning("the device reports again: %s", error)
        else:
            return


os.environ.setdefault(TF32_VARIABLE, "0")
_asked = os.environ.get(VARIABLE, "")
_wrong = unavailable(_asked) if _asked else None
if _asked and _wrong is None:
    mx.set_default_device(_DEVICES[_asked])

ON_CPU = mx.default_device() == mx.cpu
ON_CUDA = not ON_CPU and not mx.metal.is_available()
# Whether float32 may be rounded to ten bits all the same, as somebody wants it (MLX uses `atoi`).
TF32 = not ON_CPU and bool(re.match(r"\s*[+-]?0*[1-9]", os.environ[TF32_VARIABLE]))
