"""Kernels of `bushel.cache.paged` compiled for the CPU, called as MLX's kernels are.

What a kernel writes to its inputs it writes to the arrays' own memory, as on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.cache.paged import attention, page_kernels
from bushel.cache.paged.attention import AttentionShape
from bushel.cache.paged.page_kernels import PageKernels, PageShape
from tests.cpu_blocks import compiled

_HERE = Path(__file__).parent


def installed(patch: pytest.MonkeyPatch) -> None:
    """From now on kernels run here."""

    @cache
    def attend(shape: AttentionShape, final: bool) -> attention._Kernels:
        header, partition, merge = attention.source(shape, final, "")
        text = _filled("attend.cpp", header, PARTITION_BODY=partition, MERGE_BODY=merge)
        library = compiled(text)
        return attention._Kernels(
            _called(library.partition, shapes=(0, 5)), _called(library.merge, shapes=(0, 2))
        )

    @cache
    def pages(shape: PageShape) -> PageKernels:
        header, put, gather = page_kernels.source(shape, "")
        library = compiled(_filled("pages.cpp", header, PUT_BODY=put, GATHER_BODY=gather))
        return PageKernels(_called(library.put), _called(library.gather))

    patch.setattr(attention, "_kernels", attend)
    patch.setattr(attention, "_launch", cache(attention._launch.__wrapped__))
    patch.setattr(attention, "_THREADS", 64)  # two warps
    patch.setattr(page_kernels, "_kernels", pages)
    patch.setattr(page_kernels, "_THREADS", 32)


def _filled(frame: str, header: str, **bodies: str) -> str:
    text = (_HERE / frame).read_text().replace("HEADER\n", header)
    for name, body in bodies.items():
        text = text.replace(f"{name}\n", body)
    return text


def _called(function: Any, shapes: tuple[int, ...] = ()) -> Callable[..., list[mx.array]]:
    """shapes: of which inputs the kernel asks for the shape."""
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
