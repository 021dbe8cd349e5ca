"""A family that nobody has: a tiny network whose layers keep the mean of all that they saw.

Its state is of a class that no library has, either; `RunningMeanKind` is what somebody would add to
`bushel/cache` to have its rows in batches.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx

from bushel.cache.layer_kind import Layer, LayerKind, LayerSnapshot, owned, some_rows
from bushel.core.footprint import LayerFootprint
from tests.families.checkpoint import (
    randomise,
    write_config,
    write_generation_config,
    write_tokenizer,
    write_weights,
)
from tests.families.config_fragments import BASE

CODE = '''
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.base import BaseModelArgs


@dataclass
class ModelArgs(BaseModelArgs):
    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int


class RunningMean:
    """The sum of what one row has shown, and of how many tokens."""

    def __init__(self, width):
        self.total, self.count = mx.zeros((1, 1, width)), 0

    @property
    def state(self):
        return self.total

    @property
    def offset(self):
        return self.count


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.show = nn.Linear(width, width, bias=False)
        self.look = nn.Linear(width, width, bias=False)

    def __call__(self, x, cache):
        shown = self.show(self.norm(x))
        totals = cache.total + mx.cumsum(shown, axis=1)
        # One number for a lone row, and [B, 1, 1] for several.
        counts = cache.count + mx.arange(1, x.shape[1] + 1)[None, :, None]
        cache.total, cache.count = totals[:, -1:], cache.count + x.shape[1]
        return x + self.look(nn.silu(totals / mx.sqrt(counts)))


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args, self.model_type = args, args.model_type
        self.embed_tokens = nn.Embedding(args.vocab_size, args.hidden_size)
        self.layers = [Block(args.hidden_size) for _ in range(args.num_hidden_layers)]
        self.norm = nn.RMSNorm(args.hidden_size)
        self.lm_head = nn.Linear(args.hidden_size, args.vocab_size, bias=False)

    def make_cache(self):
        return [RunningMean(self.args.hidden_size) for _ in self.layers]

    def __call__(self, inputs, cache=None, **rest):
        x = self.embed_tokens(inputs)
        for layer, state in zip(self.layers, cache or self.make_cache()):
            x = layer(x, state)
        return self.lm_head(self.norm(x))
'''


def invented(path: Path) -> str:
    """A checkpoint of that family, with its code."""
    config = {**BASE, "model_type": "running_mean", "model_file": "family.py"}
    write_config(path, config)
    (path / "family.py").write_text(CODE)
    write_generation_config(path)
    write_tokenizer(path)
    module = ModuleType("running_mean")
    sys.modules[module.__name__] = module  # its dataclass is looked up there
    exec(CODE, module.__dict__)
    network = module.Model(module.ModelArgs.from_dict(config))
    randomise(network, seed=3)
    write_weights(path, network)
    return str(path)


class BatchRunningMean:
    """Rows of RunningMean: the network runs on it as on one row's."""

    def __init__(self, total: mx.array, count: mx.array):
        self.total, self.count = total, count  # [B, 1, D], [B, 1, 1]

    @property
    def state(self) -> list[mx.array]:
        return [self.total, self.count]


class RunningMeanKind(LayerKind):
    name = "running mean"

    def merge(self, singles: Sequence[Layer]) -> Layer:
        totals = mx.concatenate([single.total for single in singles])
        return BatchRunningMean(totals, mx.array([[[single.count]] for single in singles]))

    def join(self, batch: Layer, singles: Sequence[Layer]) -> None:
        new = self.merge(singles)
        batch.total = mx.concatenate([batch.total, new.total])
        batch.count = mx.concatenate([batch.count, new.count])

    def leave(self, batch: Layer, keep: Sequence[int], positions: Sequence[int]) -> None:
        batch.total, batch.count = some_rows(batch.total, keep), some_rows(batch.count, keep)

    def single(self, batch: Layer, row: int, position: int, fresh: Layer) -> Layer:
        fresh.total, fresh.count = mx.contiguous(batch.total[row : row + 1]), position
        return fresh

    def snapshot(self, single: Layer, position: int) -> LayerSnapshot:
        return LayerSnapshot(self.name, position, (owned(single.total),))

    def restore(self, snapshot: LayerSnapshot, fresh: Layer) -> Layer:
        fresh.total, fresh.count = owned(snapshot.arrays[0]), snapshot.position
        return fresh

    def arrays(self, layer: Layer) -> Iterator[mx.array]:
        yield from (part for part in (layer.total, layer.count) if isinstance(part, mx.array))

    def size(self, single: Layer, position: int) -> list[LayerFootprint]:
        return [LayerFootprint(fixed=single.total.nbytes, buffers=2)]

    def check(self, layer: Layer, positions: Sequence[int]) -> None:
        counts: Any = layer.count
        found = [counts] if isinstance(counts, int) else counts.reshape(-1).tolist()
        self.require(found == list(positions), f"counts {found}, rows {list(positions)}")
