"""Conversations packed into rows of one length, and rows into shards of one shape.

A row holds whole conversations one after the other:

    ids       <|im_start|> … <|im_end|> \\n <|im_start|> … <|im_end|> \\n <pad> …
    document  1 1 1 1 1 1 1 1 1 1 1 1 1    2 2 2 2 2 2 2 2 2 2 2 2 2    0
    place     0 1 2 3 …                    0 1 2 3 …                    0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tools.tiny.chat import Encoded, Talk, encode
from tools.tiny.config import IMAGE_PAD, SPECIAL, Sizes
from tools.tiny.tasks import agent_talk, long_talk, talk
from tools.tiny.words import Draw

_PAD = SPECIAL.index(IMAGE_PAD)
# Conversations that wait for a row with room for them: more fill rows better, but each shard
# starts anew, and what still waits at its end was made for nothing.
_WAITING = 14


@dataclass(frozen=True)
class Shape:
    """rows x length tokens, and that many pictures at most."""

    rows: int = 8
    length: int = 2048
    pictures: int = 48


SHORT = Shape()
LONG = Shape(rows=1, length=16384, pictures=40)


def positions(encoded: Encoded, sizes: Sizes) -> NDArray[np.int32]:
    """[3, T]: time, row and column; a picture takes as many steps as its longer side."""
    out = np.zeros((3, len(encoded.ids)), np.int32)
    grids = iter(encoded.pictures)
    at, step = 0, 0
    ids = encoded.ids
    while at < len(ids):
        if ids[at] != _PAD:
            out[:, at] = step
            at, step = at + 1, step + 1
            continue
        rows, columns = (side // sizes.merge for side in next(grids).grid)
        cell = np.arange(rows * columns)
        span = slice(at, at + len(cell))
        out[0, span] = step
        out[1, span] = step + cell // columns
        out[2, span] = step + cell % columns
        at, step = at + len(cell), step + max(rows, columns)
    return out


def empty(shape: Shape, sizes: Sizes) -> dict[str, NDArray[Any]]:
    tokens = (shape.rows, shape.length)
    return {
        "ids": np.zeros(tokens, np.int16),
        "document": np.zeros(tokens, np.int16),
        "place": np.zeros(tokens, np.int16),
        "positions": np.zeros((3, *tokens), np.int16),
        "trained": np.zeros(tokens, bool),
        "pixels": np.zeros((shape.pictures, sizes.patches, 3 * sizes.patch**2), np.uint8),
        "grid": np.full((shape.pictures, 2), sizes.merge, np.int16),
        "cells": np.full((shape.pictures, sizes.image_tokens, 2), -1, np.int8),
        "target": np.full((shape.pictures, sizes.image_tokens), -1, np.int32),
    }


class Packer:
    """Fills one shard after the other; what did not fit waits for the next."""

    def __init__(self, make: Callable[[], Talk], tokenizer: Any, shape: Shape, sizes: Sizes):
        self.make, self.tokenizer, self.shape, self.sizes = make, tokenizer, shape, sizes
        self.waiting: list[tuple[Talk, Encoded]] = []

    def shard(self) -> tuple[dict[str, NDArray[Any]], list[tuple[int, int, Talk]]]:
        """Arrays of `Rows`, and which talk is which document of which row."""
        arrays = empty(self.shape, self.sizes)
        placed: list[tuple[int, int, Talk]] = []
        pictures = 0
        for row in range(self.shape.rows):
            at, document = 0, 0
            while (found := self._fitting(self.shape.length - at, pictures)) is not None:
                document += 1
                one, encoded = found
                self._put(arrays, encoded, row, at, document, pictures)
                placed.append((row, document, one))
                at += len(encoded.ids)
                pictures += len(encoded.pictures)
        return arrays, placed

    def _fitting(self, room: int, pictures: int) -> tuple[Talk, Encoded] | None:
        while len(self.waiting) < _WAITING:
            one = self.make()
            encoded = encode(one, self.tokenizer)
            if len(encoded.ids) <= self.shape.length:
                self.waiting.append((one, encoded))
        for at, (_, encoded) in enumerate(self.waiting):
            fits = len(encoded.ids) <= room
            if fits and pictures + len(encoded.pictures) <= self.shape.pictures:
                return self.waiting.pop(at)
        return None

    def _put(
        self, arrays: dict[str, NDArray[Any]], encoded: Encoded, row: int, at: int,
        document: int, picture: int,
    ) -> None:  # fmt: skip
        span = slice(at, at + len(encoded.ids))
        ids = np.asarray(encoded.ids, np.int16)
        arrays["ids"][row, span] = ids
        arrays["document"][row, span] = document
        arrays["place"][row, span] = np.arange(len(ids))
        arrays["positions"][:, row, span] = positions(encoded, self.sizes)
        arrays["trained"][row, span] = encoded.trained
        places = np.flatnonzero(ids == _PAD)
        used = 0
        for slot, one in enumerate(encoded.pictures, start=picture):
            mine = row * self.shape.length + at + places[used : used + one.tokens]
            arrays["target"][slot, : one.tokens] = mine
            used += one.tokens
            patches = one.patches()
            arrays["pixels"][slot, : len(patches)] = patches
            arrays["grid"][slot] = one.grid
            arrays["cells"][slot, : one.tokens] = one.cells()


def maker(
    seed: str, long: bool, held: bool = False, pieces: Sequence[str] = ()
) -> Callable[[], Talk]:
    """Conversations of one seed; with `long`, many are texts of up to 14k tokens."""
    draw = Draw(seed, held, pieces)

    def make() -> Talk:
        if long and draw.chance(0.09):
            return long_talk(draw, int(1500 * 24 ** draw.rng.random()))
        if long and draw.chance(0.13):
            return agent_talk(draw, int(4000 * 10 ** draw.rng.random()))
        return talk(draw)

    return make
