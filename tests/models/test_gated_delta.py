"""Matrices inverted in blocks, and short pieces, beside what mlx-vlm does and what is right."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_vlm.models.qwen3_5 import gated_delta as library

from bushel.models import gated_delta, load
from bushel.models.gated_delta import invert_unit_lower
from tests.depth import often


def like_keys(seed: int, *lead: int, size: int = 64) -> np.ndarray:
    """As correlated keys make it: entries below the diagonal near one."""
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(*lead, size, 16)) + 2 * rng.normal(size=(*lead, 1, 16))
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    return np.eye(size) + np.tril(keys @ keys.swapaxes(-1, -2), -1) * rng.uniform(0.5, 1)


@pytest.mark.parametrize("size", [8, 16, 64])
@pytest.mark.parametrize("lead", [(), (3,), (2, 4, 3)])
def test_an_inverse_is_as_exact_as_float32_allows(lead: tuple[int, ...], size: int) -> None:
    matrix = like_keys(len(lead), *lead, size=size)
    found = np.array(invert_unit_lower(mx.array(matrix, mx.float32)))
    assert np.abs(found - np.linalg.inv(matrix)).max() < 2e-6
    assert (np.triu(found, 1) == 0).all()


@pytest.fixture
def by_rows() -> Any:
    """What the library does by itself."""
    load("bushel:tiny").close()
    current: Any = library._invert_unit_lower
    assert current.in_blocks
    return next(cell.cell_contents for cell in current.__closure__ if callable(cell.cell_contents))


def chunked(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(tokens)

    def some(*shape: int) -> mx.array:
        return mx.array(rng.normal(size=shape).astype(np.float32))

    q, k = (some(2, tokens, 2, 16) for _ in range(2))
    q, k = (x / mx.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    gates = mx.sigmoid(some(2, tokens, 4)), mx.sigmoid(some(2, tokens, 4))
    y, state = library.gated_delta_chunked(q, k, some(2, tokens, 4, 16), *gates, some(2, 4, 16, 16))
    return np.array(y), np.array(state)


@pytest.mark.parametrize("tokens", often([1, 63, 64, 200], 63, 200))
def test_a_prompt_leaves_what_it_does_in_the_library(
    by_rows: Any, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    ours = chunked(tokens)
    monkeypatch.setattr(library, "_invert_unit_lower", by_rows)
    for mine, theirs in zip(ours, chunked(tokens), strict=True):
        assert np.abs(mine - theirs).max() < 1e-5


def test_other_sizes_are_left_to_the_library(by_rows: Any) -> None:
    matrix = mx.array(like_keys(0, 2, size=24), mx.float32)
    current: Any = library._invert_unit_lower
    assert mx.array_equal(current(matrix, 24), by_rows(matrix, 24))


def test_it_is_installed_once() -> None:
    load("bushel:tiny").close()
    before = library._invert_unit_lower
    gated_delta.install()
    assert library._invert_unit_lower is before


@pytest.mark.parametrize("tokens", often([2, 8, 17, 63], 17))
def test_a_short_prompt_leaves_what_it_does_when_it_is_filled_up(
    by_rows: Any, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    current: Any = library.gated_delta_chunked
    assert current.as_short
    ours = chunked(tokens)
    [filled] = [it.cell_contents for it in current.__closure__ if callable(it.cell_contents)]
    monkeypatch.setattr(library, "gated_delta_chunked", filled)
    for mine, theirs in zip(ours, chunked(tokens), strict=True):
        assert np.abs(mine - theirs).max() < 1e-5
