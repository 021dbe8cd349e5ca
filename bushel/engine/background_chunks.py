"""Evaluates chunks of prompts in the background, at most one ahead of the device."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten


class BackgroundChunks:
    def __init__(self) -> None:
        # Evaluated when the last chunk is; a copied scalar, so that to wait holds no state buffer.
        self._marker: mx.array | None = None

    def start(self, states: list[mx.array], *, catch_up: bool) -> None:
        """catch_up: wait for the chunk before it; nothing else keeps the host from running off."""
        leaves: Any = tree_flatten(states)
        arrays = [leaf for _, leaf in leaves if isinstance(leaf, mx.array) and leaf.size]
        if not arrays:
            return
        if catch_up:
            self.wait()
        marker = arrays[-1][(0,) * arrays[-1].ndim] + 0
        mx.async_eval(arrays, marker)
        self._marker = marker  # what could not be launched would raise again

    def wait(self) -> None:
        """For the last chunk."""
        marker, self._marker = self._marker, None
        if marker is not None:
            mx.eval(marker)
