"""Masks before every way of choosing tokens: MLX's operations, and the launch for CUDA."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from bushel.core import Decoding
from bushel.engine.sampling import cuda, draw
from bushel.engine.sampling.chooser import Masks
from bushel.engine.sampling.sampler import Sampler, listed
from bushel.engine.sampling.vectorised import VectorisedChooser
from tests.depth import often
from tests.engine.numpy_sampling import Settings, decoding
from tests.engine.test_cuda_sampling import (  # noqa: F401
    DTYPES,
    SETTINGS,
    _on_this_machine,
    drawn,
    logits_of,
    off,
)

WIDTH = 600
CHOOSERS = {"grouped": VectorisedChooser, "one launch": cuda.KernelChooser}


def rows() -> list[Decoding]:
    kinds = [
        {"temperature": 0.0},
        *({"temperature": 1.5, "top_k": top_k} for top_k in (2, 40, 300)),
        *({"temperature": 1.5, "top_p": top_p} for top_p in (0.95, 0.3)),
        {"temperature": 2.0, "min_p": 0.01},
        {"temperature": 1.0, "repetition_penalty": 1.5, "presence_penalty": 1.0},
        {"temperature": 1.0, "logit_bias": {7: 100.0, 8: -100.0}},
        {"temperature": 1.0, "min_tokens": 5},
    ]
    return [decoding(WIDTH, seed=seed, **kind) for seed, kind in enumerate(kinds)]


def sampled(chooser: str, logits: mx.array, mine: list[Decoding], masks: Masks | None) -> list[int]:
    sampler = Sampler(WIDTH)
    sampler.chooser = CHOOSERS[chooser](WIDTH)
    for row in mine:
        sampler.join(row, [1], [])
    count = len(mine)
    inputs = mx.ones((count, 1), dtype=mx.uint32)
    found = sampler.sample(logits[:, None], inputs, [0] * count, list(range(count)), masks=masks)
    return listed(found.tokens)


def masks_of(allowed: list[list[int] | None]) -> Masks:
    words = np.full((len(allowed) + 1, -(-WIDTH // 32)), 0xFFFFFFFF, np.uint32)
    for at, tokens in enumerate(allowed):
        if tokens is not None:
            words[at] = 0
            for token in tokens:
                words[at, token // 32] |= np.uint32(1 << token % 32)
    return Masks(mx.arange(len(allowed)), mx.array(words))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("chooser", CHOOSERS)
@pytest.mark.parametrize("count", [1, 3, 200])
def test_only_what_a_mask_allows_is_chosen(chooser: str, dtype: mx.Dtype, count: int) -> None:
    """And rows without one choose what they would without any."""
    mine = rows()
    x = mx.stack([logits_of(WIDTH, dtype, seed) for seed in range(len(mine))])
    plain = sampled(chooser, x, mine, None)
    rng = np.random.default_rng(count)
    few = [rng.choice(WIDTH, count, replace=False).tolist() for _ in mine]
    allowed = [tokens if at % 2 else None for at, tokens in enumerate(few)]
    found = sampled(chooser, x, mine, masks_of(allowed))
    for at, tokens in enumerate(allowed):
        assert found[at] in tokens if tokens is not None else found[at] == plain[at]


@pytest.mark.parametrize("count", often([5, 60, 300], 60))
def test_each_token_that_is_left_has_its_share_in_one_launch(count: int) -> None:
    rng = np.random.default_rng(count)
    x = np.array(logits_of(WIDTH, mx.float32))
    x[rng.choice(WIDTH, WIDTH - count, replace=False)] = -np.inf
    for it in SETTINGS:
        if it.top_k < count:
            assert off(drawn(it, mx.array(x)), x, it) < 1.01, it


def test_more_than_is_left_may_be_asked_for() -> None:
    """A top_k beyond the number of tokens that are allowed."""
    x = np.full(WIDTH, -np.inf, np.float32)
    x[[4, 99, 598]] = [1.0, 2.0, 0.5]
    counts = drawn(Settings(1.0, 40), mx.array(x))
    assert set(np.nonzero(counts)[0]) <= {4, 99, 598}
    assert counts.sum() == counts[[4, 99, 598]].sum()


def test_bits_stand_for_tokens() -> None:
    """The control: the last word has fewer tokens than bits."""
    x = mx.zeros((2, 70))
    words = mx.array(np.array([[1, 0, 1 << 5], [0xFFFFFFFF] * 3], np.uint32))
    found = np.array(draw.hold(x, words, mx.array([0, 1])))
    assert np.nonzero(np.isfinite(found[0]))[0].tolist() == [0, 69]
    assert np.isfinite(found[1]).all()
