"""Kernels of `bushel.cache.paged` compiled for the CPU, called as MLX's kernels are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bushel.cache.paged import attention, page_kernels
from bushel.cache.paged.attention import AttentionShape
from bushel.cache.paged.page_kernels import PageKernels, PageShape
from tests.cpu_blocks import called, compiled, filled

_HERE = Path(__file__).parent


def installed(patch: pytest.MonkeyPatch) -> None:
    """From now on kernels run here."""

    @cache
    def attend(shape: AttentionShape, final: bool) -> attention._Kernels:
        header, partition, merge = attention.source(shape, final, "")
        text = filled(_HERE / "attend.cpp", header, PARTITION_BODY=partition, MERGE_BODY=merge)
        library = compiled(text)
        return attention._Kernels(
            called(library.partition, shapes=(0, 5)), called(library.merge, shapes=(0, 2))
        )

    @cache
    def pages(shape: PageShape) -> PageKernels:
        header, put, gather = page_kernels.source(shape, "")
        library = compiled(filled(_HERE / "pages.cpp", header, PUT_BODY=put, GATHER_BODY=gather))
        return PageKernels(called(library.put), called(library.gather))

    patch.setattr(attention, "_kernels", attend)
    patch.setattr(attention, "_launch", cache(attention._launch.__wrapped__))
    patch.setattr(attention, "_THREADS", 64)  # two warps
    patch.setattr(page_kernels, "_kernels", pages)
    patch.setattr(page_kernels, "_THREADS", 32)


def everywhere(patch: pytest.MonkeyPatch) -> None:
    """And pages are written and read by them alone, as on a GPU."""
    installed(patch)
    for module in ("sdpa", "layer_pages"):
        patch.setattr(f"bushel.cache.paged.{module}.ON_CPU", False)
