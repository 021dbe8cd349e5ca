"""Compiles a kernel's text for the CPU, where `block.h` runs its blocks one after the other."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

_OPTIONS = ("-std=c++17", "-O1", "-w", "-U_FORTIFY_SOURCE", "-shared", "-fPIC")


def compiled(text: str, folder: Path) -> ctypes.CDLL:
    """The library that a C++ text makes. It may include `block.h`."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    assert compiler, "MLX's CPU build needs a C++ compiler as well"
    source = folder / f"k{len(list(folder.iterdir()))}.cpp"
    source.write_text(text)
    library = source.with_suffix(".so")
    include = f"-I{Path(__file__).parent}"
    subprocess.run([compiler, *_OPTIONS, include, "-o", library, source], check=True)
    return ctypes.CDLL(str(library))
