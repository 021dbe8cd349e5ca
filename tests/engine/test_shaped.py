"""Typical_p, top_n_sigma and XTC against numpy, alone and side by side."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from bushel.core import Decoding
from bushel.engine.sampling import draw, shaped, vectorised
from tests.depth import one_in

from .numpy_samplers import drawable, expected, without_top_choices
from .numpy_sampling import decoding, excess

WIDTH = 300
SAMPLES = 4_000
LOGITS = (np.random.default_rng(3).normal(size=WIDTH) * 2).astype(np.float32)
LOGITS[[7, 9]] = -np.inf
MIXES: list[dict[str, Any]] = [
    {"typical_p": 0.5},
    {"typical_p": 0.9, "temperature": 2.0},
    {"typical_p": 0.0},
    {"top_n_sigma": 1.0},
    {"top_n_sigma": 2.0, "temperature": 3.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.02},
    {"xtc_probability": 0.4, "xtc_threshold": 0.05},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0, "top_k": 5},
    {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    {"top_k": 40, "typical_p": 0.7, "top_p": 0.9},
    {"top_k": 100, "min_p": 0.02, "top_p": 0.8, "top_n_sigma": 1.5, "typical_p": 0.8,
     "xtc_probability": 0.5, "xtc_threshold": 0.1, "temperature": 1.5},
]  # fmt: skip


def row_of(said: dict[str, Any]) -> Decoding:
    return decoding(WIDTH, **{"temperature": 1.0, **said})


def uniform(count: int) -> np.ndarray:
    return np.random.default_rng(7).random((count, 2, 1), dtype=np.float32)


def drawn(rows: list[Decoding], u: np.ndarray, *, at: int = 0) -> np.ndarray:
    """Tokens of row `at`, one for each of its numbers, in company of the others."""
    row = rows[at]
    way = draw.route(row)
    [*settings] = vectorised._settings(way, rows)
    mine = [None if it is None else mx.repeat(it[at : at + 1], len(u), axis=0) for it in settings]
    x = mx.broadcast_to(mx.array(LOGITS)[None], (len(u), WIDTH))
    return np.array(getattr(shaped, way)(x, mx.array(u), *mine))


def misfit(tokens: np.ndarray, wanted: np.ndarray) -> float:
    return excess(np.bincount(tokens, minlength=WIDTH), wanted * len(tokens))


@pytest.mark.parametrize("said", one_in(3, MIXES), ids=str)
def test_tokens_follow_the_distribution_that_was_asked_for(said: dict[str, Any]) -> None:
    """What is left is exactly what numpy leaves, and comes as often."""
    row = row_of(said)
    tokens = drawn([row], uniform(SAMPLES))
    wanted = expected(LOGITS, row)
    assert set(tokens.tolist()) <= set(np.flatnonzero(wanted > 0).tolist())
    assert misfit(tokens, wanted) < 5


@pytest.mark.parametrize("said", MIXES, ids=str)
def test_every_token_that_is_left_can_be_drawn_and_no_other(said: dict[str, Any]) -> None:
    """Numbers at the edges of each token's share, with and without XTC's toss."""
    row = row_of(said)
    shares = drawable(LOGITS, row)
    order = np.argsort(-LOGITS, kind="stable")
    for toss in (0.0, 1 - 2**-24):
        tossed = toss < row.xtc_probability
        left = without_top_choices(shares, row.xtc_threshold) if tossed else shares
        ranked = left[order]
        middles = (np.cumsum(ranked) - ranked / 2)[ranked > 1e-5]
        u = np.stack([middles, np.full(len(middles), toss)], axis=1)[:, :, None]
        tokens = drawn([row], u.astype(np.float32))
        assert tokens.tolist() == order[ranked > 1e-5].tolist()


def test_control_other_settings_do_not_fit() -> None:
    for said, other in (
        ({"typical_p": 0.5}, {"typical_p": 0.55}),
        ({"top_n_sigma": 2.0}, {"top_n_sigma": 1.7}),
        (
            {"xtc_probability": 0.4, "xtc_threshold": 0.02},
            {"xtc_probability": 0.6, "xtc_threshold": 0.02},
        ),
        (
            {"xtc_probability": 1.0, "xtc_threshold": 0.02},
            {"xtc_probability": 1.0, "xtc_threshold": 0.05},
        ),
    ):
        assert misfit(drawn([row_of(said)], uniform(SAMPLES)), expected(LOGITS, row_of(other))) > 5


@pytest.mark.parametrize("narrow", [False, True])
def test_a_row_draws_the_same_beside_rows_of_other_settings(narrow: bool) -> None:
    """Among them rows that ask for nothing that their neighbours ask for."""
    rows = [row_of(said) for said in MIXES]
    rows = [row for row in rows if (draw.route(row) == "shaped_narrow") == narrow]
    assert len(rows) > 1
    u = uniform(200)
    for at, row in enumerate(rows):
        np.testing.assert_array_equal(drawn(rows, u, at=at), drawn([row], u))


@pytest.mark.parametrize("said", [{"typical_p": 0.1}, {"xtc_probability": 1.0}, {"top_n_sigma": 1}])
def test_a_temperature_of_zero_takes_the_likeliest(said: dict[str, Any]) -> None:
    assert draw.route(decoding(WIDTH, temperature=0.0, **said)) == "greedy"


@pytest.mark.parametrize(
    "said", [{"typical_p": 1.0}, {"xtc_threshold": 0.3}, {"top_n_sigma": -1}, {"top_n_sigma": 0}]
)
def test_a_row_that_asks_for_none_of_them_goes_its_old_way(said: dict[str, Any]) -> None:
    assert draw.route(row_of(said)) == "wide"
