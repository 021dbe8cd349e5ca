"""The device that models run on: which one, what it may hold, how fast it is, what it rounds."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections.abc import Iterator
from importlib.metadata import version

import mlx.core as mx
import numpy as np

from bushel.core.machine_memory import beside_engine, job_memory, total_memory
from bushel.doctor import kernels
from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section, duration, size
from bushel.engine import device_memory
from bushel.models import device
from bushel.server.options import ServerOptions

_OPERATIONS, _ROUNDS = 200, 30
# Seconds an operation, above which a model of 500 of them a step has no hope of 20 steps a second.
_SLOW_OPERATION = 100e-6
# Of products of 512 numbers: 5e-7 was measured on a CPU; ten bits of each number leave 5e-4 of it.
_FLOAT32_ROUNDING = 1e-5
_SIZES = ("memory_size", "max_recommended_working_set_size", "max_buffer_length", "total_memory")


def section(options: DoctorOptions) -> Section:
    return Section(
        [
            Probe("backend", backend),
            Probe("device", limits),
            Probe("memory limits", memory_limits),
            Probe("operations", operations, seconds=60),
            Probe("float32", rounding, seconds=60),
            Probe("kernels", kernels.correct, seconds=90),
        ]
    )


def backend() -> Iterator[Finding]:
    asked = os.environ.get(device.VARIABLE, "")
    if asked and (why := device.unavailable(asked)) is not None:
        yield Finding("wrong", "backend", why, f"Unset {device.VARIABLE}.")
        return
    name = "CPU" if device.ON_CPU else "CUDA" if device.ON_CUDA else "Metal"
    words = f"{name}, mlx {version('mlx')}"
    words += f", {device.VARIABLE}={asked}" if asked else ""
    if name != "CPU" or asked:
        yield Finding("ok", "backend", words)
    elif platform.system() == "Darwin":
        advice = "MLX finds no Metal: a virtual machine or a container has none. Run it on macOS."
        yield Finding("slow", "backend", words, advice)
    elif shutil.which("nvidia-smi"):
        advice = "There is an NVIDIA GPU: pip install 'mlx[cuda13]', or MLX=cuda13 make setup."
        yield Finding("slow", "backend", words, advice)
    else:
        yield Finding("ok", "backend", words)


def limits() -> Iterator[Finding]:
    told = sorted(mx.device_info().items())
    shown = (
        f"{name} {size(value) if name in _SIZES and isinstance(value, int) else value}"
        for name, value in told
    )
    yield Finding("ok", "device", ", ".join(shown) or "says nothing of itself")


def memory_limits() -> Iterator[Finding]:
    """As a server settles them without flags."""
    beside = beside_engine(ServerOptions.workers, job_memory(total_memory()))
    limit = device_memory.memory_limit(beside)
    promised = limit - limit // 20
    words = f"limit {size(limit)}, of which {size(promised)} for weights and requests"
    if device.ON_CPU:
        words += "; freed memory is not limited, and nothing is wired, on a CPU"
    else:
        words += f"; freed memory kept {size(device_memory.cache_limit(limit))}"
        wired = device_memory.wired_limit(promised)
        words += f"; wired {size(wired)}" if wired else "; nothing is wired but on Metal"
    buffers = device_memory.buffer_limit()
    if buffers < 1 << 60:
        words += f"; {buffers:,} buffers"
    yield Finding("ok", "memory limits", words)


def operations() -> Iterator[Finding]:
    """Small ones: what each costs whatever it computes, and how long the host waits for one."""
    chain, alone = _each(_OPERATIONS), _each(1)
    words = f"{duration(chain)} each in a chain of {_OPERATIONS}, {duration(alone)} to wait for one"
    if chain > _SLOW_OPERATION:
        advice = (
            "Something else keeps the device or the processor busy, or the machine saves power: "
            "end it, plug it in, and try again."
        )
        yield Finding("slow", "operations", words, advice)
    else:
        yield Finding("ok", "operations", words)


def _each(count: int) -> float:
    """Median seconds for an operation, of so many that are computed together."""
    one, times = mx.ones((8,)), []
    mx.eval(one)
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        value = one
        for _ in range(count):
            value = value + one
        mx.eval(value)
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


def rounding() -> Iterator[Finding]:
    """Whether float32 is computed as such: some GPUs multiply it in TF32 unless told not to."""
    numbers = np.random.default_rng(0)
    one, two = (numbers.standard_normal((512, 512)).astype(np.float32) for _ in range(2))
    product = np.array(mx.matmul(mx.array(one), mx.array(two)))
    error = kernels.apart(product, one.astype(np.float64) @ two.astype(np.float64))
    setting = os.environ.get("MLX_ENABLE_TF32")
    kind = "as float32" if error <= _FLOAT32_ROUNDING else "in fewer bits, as TF32 has"
    words = (
        f"products are computed {kind}: {error:.1e} off; MLX_ENABLE_TF32 is {setting or 'unset'}"
    )
    yield Finding("ok", "float32", words)
