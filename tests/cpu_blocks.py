"""Compiles a kernel's text for the CPU, where `block.h` runs its blocks one after the other."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

_HERE = Path(__file__).parent
_OPTIONS = ("-std=c++17", "-O1", "-w", "-U_FORTIFY_SOURCE", "-shared", "-fPIC")


def compiled(text: str) -> ctypes.CDLL:
    """The library that a C++ text makes, once per machine. It may include `block.h`."""
    library = _root() / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=_root()) as scratch:
            source, made = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
            source.write_text(text)
            command = [_compiler(), *_OPTIONS, f"-I{_HERE}", "-o", str(made), str(source)]
            subprocess.run(command, check=True)
            made.rename(library)
    return ctypes.CDLL(str(library))


@cache
def _compiler() -> str:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "MLX's CPU build needs a C++ compiler as well"
    return compiler


@cache
def _root() -> Path:
    """Keyed by what shapes a library beside its text; libraries appear in it by one rename."""
    version = subprocess.run([_compiler(), "--version"], capture_output=True, check=True).stdout
    headers = [(_HERE / name).read_bytes() for name in ("block.h", "host.h")]
    parts = (version, " ".join(_OPTIONS).encode(), *headers)
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    root = Path(tempfile.gettempdir()) / f"bushel-kernels-{digest}"
    root.mkdir(exist_ok=True)
    return root


def filled(frame: Path, header: str, **bodies: str) -> str:
    """The text of a frame that runs a kernel, with what MLX would compile."""
    text = frame.read_text().replace("HEADER\n", header)
    for name, body in bodies.items():
        text = text.replace(f"{name}\n", body)
    return text


def called(function: Any, shapes: tuple[int, ...] = ()) -> Callable[..., list[mx.array]]:
    """A kernel as MLX calls it; what it writes to its inputs it writes to the arrays' own memory.

    shapes: of which inputs the kernel asks for the shape.
    """
    types: list[mx.Dtype] = []

    def run(
        *,
        inputs: list[mx.array],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: list[Any],
        output_dtypes: list[mx.Dtype],
    ) -> list[mx.array]:
        given_types = [array.dtype for array in inputs]
        types.extend(given_types if not types else ())
        # MLX puts them into the text: for others it would be compiled once more, in seconds.
        assert types == given_types, f"a kernel for {types} is given {given_types}"
        asked = [np.array([*inputs[at].shape], np.int32) for at in shapes]
        outputs = [
            mx.zeros(size, dtype) for size, dtype in zip(output_shapes, output_dtypes, strict=True)
        ]
        mx.eval(outputs)
        given = [*asked, *map(memory, inputs), *map(memory, outputs)]
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in given]
        function(grid[0] // threadgroup[0], *pointers)
        return outputs

    return run


def memory(array: mx.array) -> np.ndarray:
    """An array's own, where it is in order; a copy of it where it is not."""
    array = mx.contiguous(array)
    plain = array.view(mx.uint16) if array.dtype == mx.bfloat16 else array
    mx.eval(plain)
    return np.array(plain, copy=False)
