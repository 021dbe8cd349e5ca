"""Kernels of pages, on whatever machine the tests run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bushel.models.device import ON_CPU

from .host_kernels import installed


@pytest.fixture(scope="module")
def kernels_here() -> Iterator[None]:
    """Compiled for the CPU where there is no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if ON_CPU:
            installed(patch)
        yield
