"""Compiles a kernel's text for the CPU, where `block.h` runs its blocks one after the other."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

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
    parts = (version, " ".join(_OPTIONS).encode(), (_HERE / "block.h").read_bytes())
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    root = Path(tempfile.gettempdir()) / f"bushel-kernels-{digest}"
    root.mkdir(exist_ok=True)
    return root
