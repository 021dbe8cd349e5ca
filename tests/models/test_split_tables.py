"""Vocabularies in two tables are used as the library uses them, without a copy of either."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx_vlm.models.molmo.language import Embedding
from mlx_vlm.models.molmo2.language import Molmo2Embedding
from mlx_vlm.models.molmo_point.language import ExtendedLmHead

from bushel.models import split_tables

COUNT, MORE, WIDTH = 5000, 8, 64


def filled(part: Any) -> Any:
    for seed, (name, table) in enumerate(sorted(part.parameters().items())):
        part[name] = mx.random.normal(table.shape, key=mx.random.key(seed))
    mx.eval(part.parameters())
    return part


class Network(nn.Module):
    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def taken(self, x: mx.array) -> int:
        """Bytes that a call takes for a while."""
        mx.eval(x)
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(self.part(x))
        return mx.get_peak_memory() - before


@pytest.mark.parametrize("library", [Embedding, Molmo2Embedding])
def test_tokens_of_both_tables_are_found(library: Any) -> None:
    network = Network(filled(library(COUNT, MORE, WIDTH)))
    tokens = mx.array([[0, 1, COUNT - 1], [COUNT, COUNT + 3, COUNT + MORE - 1]])
    expected = network.part(tokens)
    copied = network.taken(tokens)
    split_tables.install(network)
    assert mx.array_equal(network.part(tokens), expected)
    assert network.taken(tokens) < 100_000 < COUNT * WIDTH * 4 <= copied


def test_logits_of_both_tables_are_in_order() -> None:
    network = Network(filled(ExtendedLmHead(COUNT, MORE, WIDTH)))
    split_tables.install(network)
    hidden = mx.random.normal((2, 3, WIDTH))
    assert network.taken(hidden) < COUNT * WIDTH * 4
    logits = network.part(hidden)
    assert network.part._fused is None
    expected = ExtendedLmHead.__call__(network.part, hidden)
    assert mx.allclose(logits, expected, atol=1e-4)
