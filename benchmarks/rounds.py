"""Sides after each other in one process, the order turning round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TypeVar

import mlx.core as mx

T = TypeVar("T")


def rounds(
    sides: Mapping[str, Callable[[int], T]],
    count: int,
    *,
    warm: bool = True,
    show: Callable[[int, str, T], object] = lambda *_: None,
) -> dict[str, list[T]]:
    """By side, what each round made. Sides get its number; with warm, one comes before the first,
    with -1, that does not count."""
    made: dict[str, list[T]] = {name: [] for name in sides}
    for at in range(-1 if warm else 0, count):
        for name in list(sides)[:: -1 if at % 2 else 1]:
            one = sides[name](at)
            mx.clear_cache()
            show(at, name, one)
            if at >= 0:
                made[name].append(one)
    return made


def about_mlx() -> str:
    return f"mlx {version('mlx')}, {mx.default_device()}"


def about_libraries() -> str:
    """With the peers that are measured in the same run."""
    return f"{about_mlx()}, mlx-lm {version('mlx-lm')}, mlx-vlm {version('mlx-vlm')}"


def told(values: Sequence[float]) -> str:
    return f"{statistics.median(values):9.2f} ({min(values):.2f} … {max(values):.2f})"
