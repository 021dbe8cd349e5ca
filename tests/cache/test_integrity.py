"""`check_integrity` notices state that contradicts its rows, for every kind."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from bushel.cache import BatchState
from bushel.core import IntegrityError, Prepared
from bushel.models import load
from tests.families import checkpoint_dir

LENGTHS = (21, 9, 30)


def rows(name: str) -> BatchState:
    model = load(str(checkpoint_dir(name)))
    batch = BatchState(model.make_state)
    for length in LENGTHS:
        prompt = model.embed(Prepared(tuple(range(40, 40 + length))))
        state = model.make_state()
        model.prefill(prompt, 0, length, state)
        batch.join(state, length)
    return batch


def first(batch: BatchState, kind: str) -> Any:
    """The first layer of a class, looking inside composites."""
    for layer in batch.layers:
        for part in getattr(layer, "caches", (layer,)):
            if type(part).__name__ == kind:
                return part
    raise AssertionError(f"no {kind}")


def shift(name: str) -> Callable[[Any], None]:
    return lambda layer: setattr(layer, name, getattr(layer, name) + 1)


def drop_row(layer: Any) -> None:
    layer.keys = layer.keys[:-1]


def drop_state(layer: Any) -> None:
    layer[0] = layer[0][:-1]


def leave_padding(layer: Any) -> None:
    layer.left_padding = mx.array([0] * len(LENGTHS))


DAMAGE = [
    ("llama", "BatchKVCache", shift("offset")),
    ("llama", "BatchKVCache", shift("left_padding")),
    ("llama", "BatchKVCache", drop_row),
    ("qwen2_5_vl", "BatchKVCache", shift("offset")),
    ("gemma3_text", "BatchRotatingKVCache", shift("offset")),
    ("gemma3_text", "BatchRotatingKVCache", drop_row),
    ("mamba2", "ArraysCache", drop_state),
    ("mamba2", "ArraysCache", leave_padding),
    ("falcon_h1", "BatchKVCache", shift("offset")),
    ("falcon_h1", "ArraysCache", drop_state),
]


@pytest.mark.parametrize(("name", "kind", "damage"), DAMAGE)
def test_damaged_state_is_noticed(name: str, kind: str, damage: Callable[[Any], None]) -> None:
    batch = rows(name)
    batch.check_integrity()
    damage(first(batch, kind))
    with pytest.raises(IntegrityError):
        batch.check_integrity()


def test_layers_without_rows_are_noticed() -> None:
    batch = rows("llama")
    batch.positions = []
    with pytest.raises(IntegrityError):
        batch.check_integrity()


@pytest.mark.parametrize("name", ["llama", "gemma3_text"])
def test_rows_advance_by_as_many_tokens_as_they_ran(name: str) -> None:
    batch, model = rows(name), load(str(checkpoint_dir(name)))
    model.forward(mx.array([[50, 51, 52]] * len(LENGTHS)), batch.positions, batch.layers)
    batch.advance([3] * len(LENGTHS))
    assert batch.positions == [length + 3 for length in LENGTHS]
    batch.check_integrity()
    batch.advance([1, 0, 0])
    with pytest.raises(IntegrityError):
        batch.check_integrity()
