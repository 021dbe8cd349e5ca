"""Shards made by worker processes, in an order that depends on the seed alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tools.tiny.config import Sizes
from tools.tiny.model.whole import Rows
from tools.tiny.pack import LONG, SHORT, Packer, Shape, maker
from tools.tiny.tokens import pieces, read_tokenizer, worn_tokenizer

# One shard in eight is written with one of sixteen worn tokenizers.
_WORN_EVERY, _WORN = 8, 16
# So many shards are held before old ones are drawn: fewer would come back at once.
ENOUGH = 120


class Shards(IterableDataset[dict[str, Tensor]]):
    """Shard number n is made by worker n modulo their count, so the stream is the same for any."""

    def __init__(
        self, tokenizer: Path, seed: int, long: bool, first: int, shape: Shape | None = None
    ):
        self.tokenizer, self.seed, self.long, self.first = tokenizer, seed, long, first
        self.shape = shape or (LONG if long else SHORT)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        info = get_worker_info()
        number, step = (info.id, info.num_workers) if info else (0, 1)
        torch.set_num_threads(1)
        whole = read_tokenizer(self.tokenizer)
        worn = [worn_tokenizer(self.tokenizer, seed) for seed in range(_WORN)]
        letters = pieces(whole)
        number += self.first
        kind = "long" if self.long else "short"
        while True:
            turn, rest = divmod(number, _WORN_EVERY)
            tokenizer = whole if rest or self.long else worn[turn % _WORN]
            make = maker(f"{self.seed} {kind} {number}", self.long, False, letters)
            arrays, _ = Packer(make, tokenizer, self.shape, Sizes()).shard()
            yield {key: torch.from_numpy(value) for key, value in arrays.items()}
            number += step


def loader(shards: Shards, workers: int, pin: bool) -> Iterator[dict[str, Tensor]]:
    return iter(
        DataLoader(
            shards,
            batch_size=None,
            num_workers=workers,
            pin_memory=pin,
            prefetch_factor=4 if workers else None,
        )
    )


class Pool:
    """The last shards on the device: every step takes new ones and draws old ones again."""

    def __init__(
        self, shards: Iterator[dict[str, Tensor]], device: torch.device, seed: int,
        fresh: int, together: int, keep: int = 1500,
    ):  # fmt: skip
        self.shards, self.device = shards, device
        self.fresh, self.together, self.keep = fresh, together, keep
        self.held: list[dict[str, Tensor]] = []
        self.taken = 0
        self.random = torch.Generator().manual_seed(seed)

    def batch(self) -> Rows:
        enough = len(self.held) >= ENOUGH
        new = [self._next() for _ in range(self.fresh if enough else self.together)]
        picks: list[dict[str, Tensor]] = list(new)
        while len(picks) < self.together:
            at = int(torch.randint(len(self.held), (1,), generator=self.random))
            picks.append(self.held[at])
        self.held = (self.held + new)[-self.keep :]
        return join(picks)

    def _next(self) -> dict[str, Tensor]:
        shard = next(self.shards)
        self.taken += 1
        return {key: value.to(self.device, non_blocking=True) for key, value in shard.items()}


def join(shards: list[dict[str, Tensor]]) -> Rows:
    """One batch of rows; image tokens are told where their shard's rows now stand."""

    def along(key: str, axis: int = 0) -> Tensor:
        return torch.cat([shard[key] for shard in shards], dim=axis)

    size = shards[0]["ids"].numel()
    moved = [
        torch.where(shard["target"] >= 0, shard["target"] + at * size, len(shards) * size)
        for at, shard in enumerate(shards)
    ]
    return Rows(
        ids=along("ids").long(),
        document=along("document").int(),
        place=along("place").int(),
        positions=along("positions", 1).int(),
        trained=along("trained"),
        pixels=along("pixels"),
        grid=along("grid").int(),
        cells=along("cells"),
        target=torch.cat(moved).long(),
    )


def held_out(tokenizer: Path, seed: int, count: int, long: bool = False) -> list[Any]:
    """Shards from the other side of the split, with the talks in them."""
    shape = LONG if long else SHORT
    packer = Packer(
        maker(f"{seed} held {long}", long, True), read_tokenizer(tokenizer), shape, Sizes()
    )
    shards = []
    for _ in range(count):
        arrays, placed = packer.shard()
        shards.append(({key: torch.from_numpy(value) for key, value in arrays.items()}, placed))
    return shards
