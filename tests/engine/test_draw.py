"""Tokens drawn for many rows at once, against numpy."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.engine import draw

from .reference import Settings, allowed, distribution, excess

Array = np.ndarray
# The nucleus search leaves 1e-4 nats; sums and logarithms in float32 add less than a tenth.
NATS = 1.1e-4
LARGEST = (2**24 - 1) / 2**24  # the largest number `uniforms` gives


def column(value: float, rows: int) -> mx.array:
    return mx.full((rows, 1), value, dtype=mx.float32)


def wide(logits: mx.array, it: Settings, u: mx.array) -> Array:
    rows, width = logits.shape
    return np.array(
        draw.draw_wide(
            logits,
            column(it.temperature, rows),
            mx.full((rows, 1), it.top_k or width, dtype=mx.int32) if it.top_k else None,
            column(it.min_p, rows) if it.min_p else None,
            column(it.top_p, rows) if it.top_p < 1 else None,
            u,
        )
    )


def narrow(logits: mx.array, it: Settings, u: mx.array) -> Array:
    rows = logits.shape[0]
    top_k = mx.full((rows, 1), it.top_k, dtype=mx.int32)
    one = [column(value, rows) for value in (it.temperature, it.min_p, it.top_p)]
    return np.array(draw.draw_narrow(logits, one[0], top_k, one[1], one[2], u))


def drawn(logits: Array, it: Settings, u: Array, *, through_narrow: bool = False) -> Array:
    """Many tokens from the same logits [V], one for each of u [N, 2]."""
    rows = mx.broadcast_to(mx.array(logits)[None], (len(u), len(logits))).astype(mx.float32)
    numbers = mx.array(u.astype(np.float32))
    return (narrow if through_narrow else wide)(rows, it, numbers)


def some_u(count: int, seed: int = 0) -> Array:
    """Numbers on the grid of `uniforms`, its corners first."""
    edges = [(a, b) for a in (0.0, 0.5, LARGEST) for b in (0.0, 0.5, LARGEST)]
    inner = np.random.default_rng(seed).integers(0, 2**24, (count, 2)) / 2**24
    return np.concatenate([np.array(edges), inner])


# -- the largest of a row ------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 63, 64, 65, 1000, 4095, 4096, 4097, 4160, 9001, 20_000])
@pytest.mark.parametrize("kind", ["different", "ties", "few finite"])
def test_the_best_tokens_are_those_of_a_full_sort(width: int, kind: str) -> None:
    rng = np.random.default_rng(width)
    x = rng.permuted(np.tile(np.arange(width, dtype=np.float32), (3, 1)), axis=-1)
    if kind == "ties":
        x = np.floor(x / 7)
    elif kind == "few finite":
        x[rng.random(x.shape) < 0.995] = -np.inf
    ranked = -np.sort(-x, axis=-1)
    for count in sorted({min(width, wanted) for wanted in (1, 2, 20, 63, 64, 65, 200, width)}):
        values, ids = (np.array(part) for part in draw.top(mx.array(x), count))
        np.testing.assert_array_equal(values, ranked[:, :count])
        finite = np.isfinite(values)
        for row in range(3):
            mine = ids[row][finite[row]]
            assert len(set(mine.tolist())) == len(mine)
            np.testing.assert_array_equal(x[row][mine], values[row][finite[row]])
        if kind == "different":
            np.testing.assert_array_equal(ids, np.argsort(-x, axis=-1)[:, :count])


def test_more_than_there_is_gives_what_there_is() -> None:
    values, ids = draw.top(mx.array([[1.0, 3.0, 2.0]]), 20)
    assert values.tolist() == [[3.0, 2.0, 1.0]]
    assert ids.tolist() == [[1, 2, 0]]


@pytest.mark.xfail(strict=True, reason="the padding of the last group can be among the best")
def test_the_best_tokens_are_always_tokens() -> None:
    """A model that rules tokens out with -inf may have fewer left than are asked for."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        width = int(rng.integers(4097, 5000))
        x = np.full((1, width), -np.inf, np.float32)
        x[0, rng.integers(0, width, 20)] = 1.0
        assert draw.top(mx.array(x), 64)[1].max().item() < width


@pytest.mark.xfail(strict=True, reason="which of equal logits come first depends on the count")
def test_asking_for_fewer_gives_the_beginning_of_asking_for_more() -> None:
    """Rows that ask for different counts share one call, so a row would notice its neighbours."""
    x = mx.array(np.random.default_rng(0).integers(0, 50, (1, 9000)).astype(np.float32))
    assert draw.top(x, 5)[1].tolist()[0] == draw.top(x, 20)[1].tolist()[0][:5]


# -- distributions -------------------------------------------------------------------------

SAMPLES = 8_000
LOGITS = (np.random.default_rng(3).normal(size=300) * 2).astype(np.float32)
MIXES = [
    Settings(),
    Settings(temperature=0.5),
    Settings(temperature=3.0),
    Settings(temperature=100.0),
    Settings(top_p=0.3),
    Settings(top_p=0.9),
    Settings(min_p=0.05),
    Settings(top_k=100),
    Settings(temperature=1.5, min_p=0.02, top_p=0.8),
    Settings(temperature=0.7, top_k=80, min_p=0.01, top_p=0.95),
]
NARROW_MIXES = [
    Settings(top_k=2),
    Settings(top_k=40),
    Settings(top_k=64, temperature=2.0),
    Settings(top_k=50, top_p=0.8),
    Settings(top_k=50, min_p=0.1),
    Settings(top_k=64, temperature=1.5, min_p=0.02, top_p=0.9),
]


def misfit(tokens: Array, logits: Array, it: Settings) -> float:
    counts = np.bincount(tokens, minlength=len(logits))
    return excess(counts, distribution(logits, it) * len(tokens))


def plain_u(count: int) -> Array:
    return np.random.default_rng(7).random((count, 2))


@pytest.mark.parametrize("it", MIXES, ids=str)
def test_sampled_tokens_follow_the_distribution_that_was_asked_for(it: Settings) -> None:
    assert misfit(drawn(LOGITS, it, plain_u(SAMPLES)), LOGITS, it) < 5


@pytest.mark.parametrize("it", NARROW_MIXES, ids=str)
def test_a_small_top_k_follows_the_same_distribution_on_both_ways(it: Settings) -> None:
    for through_narrow in (True, False):
        tokens = drawn(LOGITS, it, plain_u(SAMPLES), through_narrow=through_narrow)
        assert misfit(tokens, LOGITS, it) < 5


def test_a_wide_vocabulary_follows_the_distribution() -> None:
    logits = (np.random.default_rng(4).normal(size=4500) * 4).astype(np.float32)
    u = plain_u(1500)
    for it, through_narrow in (
        (Settings(top_p=0.9), False),
        (Settings(top_k=50), True),
    ):
        tokens = drawn(logits, it, u, through_narrow=through_narrow)
        assert misfit(tokens, logits, it) < 5


def test_control_slightly_wrong_settings_do_not_fit() -> None:
    tokens = drawn(LOGITS, Settings(), plain_u(SAMPLES))
    assert misfit(tokens, LOGITS, Settings(temperature=1.1)) > 5
    assert misfit(tokens, LOGITS, Settings(top_p=0.9)) > 5
    assert misfit(drawn(LOGITS, Settings(top_p=0.9), plain_u(SAMPLES)), LOGITS, Settings()) > 5


def test_control_one_number_used_for_both_levels_does_not_fit() -> None:
    u = plain_u(SAMPLES)
    tokens = drawn(LOGITS, Settings(), np.stack([u[:, 0], u[:, 0]], axis=1))
    assert misfit(tokens, LOGITS, Settings()) > 5


# -- never outside -------------------------------------------------------------------------

temperatures = st.sampled_from([1e-4, 0.1, 0.7, 1.0, 2.0, 100.0])
shares = st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 0.5, 0.9, 0.99, 0.9999999, 1.0])
widths = st.sampled_from([1, 2, 63, 64, 65, 200, 1000, 4097])


def logits_of(width: int, seed: int, spread: float, banned: float) -> Array:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=width) * spread).astype(np.float32)
    x[rng.random(width) < banned] = -np.inf
    x[rng.integers(width)] = spread
    return x


def outside(tokens: Array, logits: Array, it: Settings) -> set[int]:
    """Tokens that no rounding explains."""
    largest = np.abs(logits[np.isfinite(logits)]).max() / it.temperature
    mass = 1e-5 + largest * 2**-23
    keep = allowed(logits, it, nats=NATS + largest * 2**-22, mass=mass)
    return {token for token in tokens.tolist() if not keep[token]}


@settings(derandomize=True, max_examples=120, deadline=None)
@given(
    width=widths,
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.01, 1.0, 5.0]),
    banned=st.sampled_from([0.0, 0.5, 0.98]),
    it=st.builds(
        Settings,
        temperature=temperatures,
        top_k=st.sampled_from([0, 1, 2, 20, 64, 65, 500]),
        min_p=st.sampled_from([0.0, 1e-6, 0.05, 1.0]),
        top_p=shares,
    ),
)
def test_no_token_outside_the_allowed_set_is_ever_drawn(
    width: int, seed: int, spread: float, banned: float, it: Settings
) -> None:
    logits = logits_of(width, seed, spread, banned)
    u = some_u(40, seed)
    assert outside(drawn(logits, it, u), logits, it) == set()
    if 1 <= it.top_k <= draw.CANDIDATES:
        assert outside(drawn(logits, it, u, through_narrow=True), logits, it) == set()


def test_control_a_token_outside_is_noticed() -> None:
    tokens = drawn(LOGITS, Settings(), some_u(500))
    for it in (Settings(top_k=20), Settings(min_p=0.2), Settings(top_p=0.5)):
        assert outside(tokens, LOGITS, it)


@pytest.mark.parametrize("through_narrow", [False, True])
@pytest.mark.parametrize("width", [2, 64, 130, 5000])
def test_settings_that_leave_one_token_give_the_greedy_one(
    width: int, through_narrow: bool
) -> None:
    logits = (np.random.default_rng(width).normal(size=width) * 3).astype(np.float32)
    best = int(logits.argmax())
    k = min(width, 40) if through_narrow else 0
    for it in (
        Settings(top_k=1),
        Settings(top_k=k, top_p=0.0),
        Settings(top_k=k, top_p=1e-12),
        Settings(top_k=k, min_p=1.0),
        Settings(top_k=k, temperature=1e-4),
    ):
        tokens = drawn(logits, it, some_u(20), through_narrow=through_narrow)
        assert set(tokens.tolist()) == {best}, it


@pytest.mark.xfail(strict=True, reason="logits divided by such a temperature overflow float32")
@pytest.mark.parametrize("temperature", [1e-38, 1e-40])
def test_the_smallest_temperatures_are_greedy(temperature: float) -> None:
    logits = (np.random.default_rng(1).normal(size=130) * 3).astype(np.float32)
    tokens = drawn(logits, Settings(temperature=temperature), some_u(20))
    assert set(tokens.tolist()) == {int(logits.argmax())}


def test_the_ends_of_the_number_range_give_the_first_and_last_possible_token() -> None:
    logits = np.full(200, -np.inf, np.float32)
    logits[[70, 75, 140]] = 0.0
    u = np.array([[0.0, 0.0], [LARGEST, LARGEST], [0.0, LARGEST]])
    assert drawn(logits, Settings(), u).tolist() == [70, 140, 75]
    assert sorted(drawn(logits, Settings(top_k=3), u[:2], through_narrow=True)) == [70, 140]


def test_equal_logits_are_all_possible() -> None:
    for it in (Settings(), Settings(top_p=0.999), Settings(temperature=100.0)):
        tokens = drawn(np.zeros(96, np.float32), it, some_u(4000))
        assert set(tokens.tolist()) == set(range(96))


# -- rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [100, 5000])
@pytest.mark.parametrize("way", ["wide", "narrow"])
def test_a_row_draws_the_same_token_whoever_its_neighbours_are(width: int, way: str) -> None:
    rng = np.random.default_rng(width)
    rows = 24
    x = mx.array((rng.normal(size=(rows, width)) * 2).astype(np.float32))
    k = rng.integers(1, 65, (rows, 1)) if way == "narrow" else rng.choice([70, width], (rows, 1))
    columns = [
        mx.array(rng.choice([0.3, 1.0, 2.0], (rows, 1)).astype(np.float32)),
        mx.array(k.astype(np.int32)),
        mx.array(rng.choice([0.0, 0.01, 0.2], (rows, 1)).astype(np.float32)),
        mx.array(rng.choice([0.2, 0.9, 1.0], (rows, 1)).astype(np.float32)),
        mx.array(rng.random((rows, 2)).astype(np.float32)),
    ]
    pick = draw.draw_narrow if way == "narrow" else draw.draw_wide

    def tokens(take: Array) -> Array:
        chosen = mx.array(take)
        return np.array(pick(x[chosen], *(part[chosen] for part in columns)))

    together = tokens(np.arange(rows))
    shuffled = rng.permutation(rows)
    np.testing.assert_array_equal(tokens(shuffled), together[shuffled])
    for row in range(rows):
        assert tokens(np.array([row])) == together[row]
    np.testing.assert_array_equal(tokens(np.arange(3, 10)), together[3:10])


# -- numbers -------------------------------------------------------------------------------


def test_numbers_are_uniform_and_every_seed_and_position_has_its_own() -> None:
    pairs = [draw.uniforms(seed, at) for seed in range(-20, 20) for at in range(500)]
    values = np.array(pairs)
    assert values.min() >= 0
    assert values.max() < 1
    assert (values.astype(np.float32) == values).all()
    assert len(set(pairs)) == len(pairs)
    for part in values.T:
        counts = np.bincount((part * 100).astype(int), minlength=100)
        assert excess(counts, np.full(100, len(part) / 100)) < 5
    cells = (values[:, 0] * 10).astype(int) * 10 + (values[:, 1] * 10).astype(int)
    assert excess(np.bincount(cells, minlength=100), np.full(100, len(pairs) / 100)) < 5
    following = (values[:-1, 0] * 10).astype(int) * 10 + (values[1:, 0] * 10).astype(int)
    counts = np.bincount(following, minlength=100)
    assert excess(counts, np.full(100, len(following) / 100)) < 5


def test_numbers_depend_on_seed_and_position_alone() -> None:
    """The same values on every machine and in every version: replies stay reproducible."""
    first = [draw.uniforms(1, at) for at in range(3)]
    assert first == [draw.uniforms(1, at) for at in range(3)]
    assert draw.uniforms(2**64 + 1, 0) == draw.uniforms(1, 0)
    assert draw.uniforms(-1, 5) == draw.uniforms(2**64 - 1, 5)


def test_choices_of_one_request_have_different_seeds() -> None:
    seeds = [draw.derived_seed(7, choice) for choice in range(128)]
    assert seeds[0] == 7
    assert len(set(seeds)) == 128


# -- penalties -----------------------------------------------------------------------------


def test_penalties_equal_their_definition() -> None:
    rng = np.random.default_rng(0)
    rows, width = 6, 200
    x = rng.normal(size=(rows, width)).astype(np.float32)
    x[:, 5] = -np.inf
    x[:, 6] = 0.0
    seen = rng.random((rows, width)) < 0.3
    counts = rng.choice([0.0, 0.0, 1.0, 4.0], (rows, width)).astype(np.float32)
    repetition = np.array([[1.0], [1.3], [0.8], [1.0], [1.0], [2.0]], np.float32)
    presence = np.array([[0.0], [0.0], [0.0], [0.5], [0.0], [-1.0]], np.float32)
    frequency = np.array([[0.0], [0.0], [0.0], [0.0], [0.25], [0.1]], np.float32)
    arrays = [mx.array(part) for part in (x, seen, counts, repetition, presence, frequency)]
    expected = x.astype(np.float64)
    touched = seen | (counts > 0)
    scaled = np.where(expected > 0, expected / repetition, expected * repetition)
    expected = np.where(touched, scaled, expected)
    expected = expected - frequency * counts - np.where(counts > 0, presence, 0)
    result = np.array(draw.penalise(*arrays))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result[0], x[0])
