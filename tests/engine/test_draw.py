"""Tokens drawn for many rows at once, against numpy."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.core import GenerationDefaults, SamplingParams
from bushel.core.params import resolve
from bushel.engine.sampling import draw, vectorised
from tests.depth import often, one_in, some

from .numpy_sampling import Settings, allowed, decoding, distribution, excess

Array = np.ndarray
NUMBERS = 2 * draw.TRIES  # that a row has for one token
LARGEST = (2**24 - 1) / 2**24  # of what `uniforms` gives
OFF = 2.0  # a row's top_p that asks for nothing


def column(value: float, rows: int) -> mx.array:
    return mx.full((rows, 1), value, dtype=mx.float32)


def ways(it: Settings) -> list[str]:
    """The functions that honour these settings: `ranked` always does."""
    found = ["ranked"]
    if it.top_k == 0 and it.top_p >= draw.LEAST_NUCLEUS:
        found.append("wide")
    if 1 <= it.top_k <= draw.CANDIDATES:
        found.append("narrow")
    return found


def pick(way: str, x: mx.array, u: mx.array, *settings: mx.array | None) -> mx.array:
    """With columns for settings."""
    found: Callable[..., mx.array] = getattr(draw, way)
    return found(x, u, *(None if it is None else it[:, :, None] for it in settings))


def drawn(way: draw.Route, logits: Array, it: Settings, u: Array) -> Array:
    """Many tokens from the same logits [V], one for each row of u."""
    rows, width = len(u), len(logits)
    x = mx.broadcast_to(mx.array(logits)[None], (rows, width))
    one = vectorised._settings(way, [decoding(width, **asdict(it))])
    each = [None if value is None else mx.broadcast_to(value, (rows, 1, 1)) for value in one]
    numbers = mx.array(u.astype(np.float32)).reshape(rows, 2, -1)
    return np.array(getattr(draw, way)(x, numbers, *each))


def some_u(count: int, seed: int = 0) -> Array:
    """Numbers on the grid of `uniforms`, its corners first."""
    corners = [(one, other) for one in (0.0, LARGEST) for other in (0.0, LARGEST)]
    ends = [[one] * draw.TRIES + [other] * draw.TRIES for one, other in corners]
    ends += [[one, other] * draw.TRIES for one, other in ((0, LARGEST), (LARGEST, 0))]
    inner = np.random.default_rng(seed).integers(0, 2**24, (count, NUMBERS)) / 2**24
    return np.concatenate([np.array(ends), inner])


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ({"temperature": 0.0, "top_k": 5}, "greedy"),
        ({"temperature": 1.0, "top_k": 1}, "greedy"),
        ({"temperature": 1.0}, "wide"),
        ({"temperature": 1.0, "min_p": 0.1}, "wide"),
        ({"temperature": 1.0, "top_p": 0.9}, "wide"),
        ({"temperature": 1.0, "top_p": 0.75}, "wide"),
        ({"temperature": 1.0, "top_p": 0.5}, "ranked"),
        ({"temperature": 1.0, "top_k": 64, "top_p": 0.5}, "narrow"),
        ({"temperature": 1.0, "top_k": 65, "top_p": 0.9}, "ranked"),
    ],
)
def test_a_row_is_served_by_a_function_that_honours_its_settings(
    said: dict[str, Any], way: str
) -> None:
    params = SamplingParams(**said)
    row = resolve(params, GenerationDefaults(), vocab=300, end_ids=frozenset())
    assert draw.route(row) == way
    if way != "greedy":
        assert way in ways(Settings(row.temperature, row.top_k, row.min_p, row.top_p))


# -- the largest of a row ------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["partition", "sort"])
def sorts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done on a CPU, and what is done on a GPU."""
    monkeypatch.setattr(draw, "ON_CPU", not request.param)


@pytest.mark.usefixtures("sorts")
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


@pytest.mark.usefixtures("sorts")
def test_the_best_tokens_are_always_tokens() -> None:
    """A model that rules tokens out with -inf may have fewer left than are asked for."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        width = int(rng.integers(4097, 5000))
        x = np.full((1, width), -np.inf, np.float32)
        x[0, rng.integers(0, width, 20)] = 1.0
        assert np.array(draw.top(mx.array(x), 64)[1]).max() < width


@pytest.mark.usefixtures("sorts")
def test_asking_for_fewer_gives_the_beginning_of_asking_for_more() -> None:
    """Rows that ask for different counts share one call, so a row would notice its neighbours."""
    x = mx.array(np.random.default_rng(0).integers(0, 50, (1, 9000)).astype(np.float32))
    few, many = (np.array(draw.top(x, count)[1]) for count in (5, 20))
    np.testing.assert_array_equal(few, many[:, :5])


# -- distributions -------------------------------------------------------------------------

SAMPLES = 8_000
LOGITS = (np.random.default_rng(3).normal(size=300) * 2).astype(np.float32)
MIXES = [
    Settings(),
    Settings(temperature=0.5),
    Settings(temperature=3.0),
    Settings(temperature=100.0),
    Settings(min_p=0.05),
    Settings(top_p=0.3),
    Settings(top_p=0.75),
    Settings(top_p=0.95),
    Settings(temperature=1.5, min_p=0.02, top_p=0.8),
    Settings(top_k=2),
    Settings(top_k=40),
    Settings(top_k=64, temperature=2.0),
    Settings(top_k=64, temperature=1.5, min_p=0.02, top_p=0.9),
    Settings(top_k=100),
    Settings(temperature=0.7, top_k=80, min_p=0.01, top_p=0.95),
]


def misfit(tokens: Array, logits: Array, it: Settings) -> float:
    counts = np.bincount(tokens, minlength=len(logits))
    return excess(counts, distribution(logits, it) * len(tokens))


def plain_u(count: int) -> Array:
    return np.random.default_rng(7).random((count, NUMBERS), dtype=np.float32)


@pytest.mark.parametrize("it", often(MIXES, MIXES[0], *MIXES[2::6]), ids=str)
def test_sampled_tokens_follow_the_distribution_that_was_asked_for(it: Settings) -> None:
    for way in ways(it):
        assert misfit(drawn(way, LOGITS, it, plain_u(SAMPLES)), LOGITS, it) < 5, way


@pytest.mark.usefixtures("sorts")
@pytest.mark.parametrize(
    ("way", "it", "count"),
    one_in(
        2,
        [
            ("wide", Settings(), 1500),
            ("wide", Settings(top_p=0.9), 400),
            ("narrow", Settings(top_k=50), 1500),
        ],
    ),
)
def test_a_wide_vocabulary_follows_the_distribution(way: str, it: Settings, count: int) -> None:
    logits = (np.random.default_rng(4).normal(size=4500) * 4).astype(np.float32)
    assert misfit(drawn(way, logits, it, plain_u(count)), logits, it) < 5


def test_control_slightly_wrong_settings_do_not_fit() -> None:
    u = plain_u(SAMPLES)
    tokens = drawn("wide", LOGITS, Settings(), u)
    assert misfit(tokens, LOGITS, Settings(temperature=1.1)) > 5
    assert misfit(tokens, LOGITS, Settings(top_p=0.95)) > 5
    assert misfit(drawn("wide", LOGITS, Settings(top_p=0.95), u), LOGITS, Settings()) > 5
    assert misfit(drawn("narrow", LOGITS, Settings(top_k=40), u), LOGITS, Settings(top_k=42)) > 5


def test_control_one_number_used_for_both_levels_does_not_fit() -> None:
    u = plain_u(SAMPLES)
    u[:, draw.TRIES :] = u[:, : draw.TRIES]
    for it in (Settings(), Settings(top_p=0.95)):
        assert misfit(drawn("wide", LOGITS, it, u), LOGITS, it) > 5


def test_only_the_draws_that_a_row_has_count() -> None:
    x = mx.full((3, 64), math.log(0.1 / 62))
    x[:, 3], x[:, 7] = math.log(0.5), math.log(0.4)
    # Two draws outside of the nucleus, then its second token; without that one, the most likely.
    u = mx.broadcast_to(mx.array([[0, 0, 0], [0.95, 0.95, 0.7]]), (3, 2, 3))
    one, nucleus = mx.ones((3, 1)), mx.full((3, 1), 0.8)
    assert pick("wide", x, u, one, None, nucleus).tolist() == [7] * 3
    tries = mx.array([[1], [2], [3]])
    assert pick("wide", x, u, one, None, nucleus, tries).tolist() == [3, 3, 7]


@given(st.floats(draw.LEAST_NUCLEUS, 1.0))
def test_a_row_has_no_more_draws_than_it_takes(top_p: float) -> None:
    tries, most = draw.tries_for(decoding(top_p=top_p)), 0.25**8
    assert 1 <= tries <= draw.TRIES
    assert (1 - top_p) ** tries <= most
    assert tries == 1 or (1 - top_p) ** (tries - 1) > most


# -- never outside -------------------------------------------------------------------------


def logits_of(width: int, seed: int, spread: float, banned: float) -> Array:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=width) * spread).astype(np.float32)
    x[rng.random(width) < banned] = -np.inf
    x[rng.integers(width)] = spread
    return x


def outside(tokens: Array, logits: Array, it: Settings) -> set[int]:
    """Tokens that no rounding explains."""
    rounding = 1e-5 + np.abs(logits[np.isfinite(logits)]).max() / it.temperature * 2**-22
    keep = allowed(logits, it, nats=rounding, mass=rounding)
    return {token for token in tokens.tolist() if not keep[token]}


@settings(derandomize=True, max_examples=some(120))
@given(
    width=st.sampled_from([1, 2, 63, 64, 65, 200, 1000, 4097]),
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.01, 1.0, 5.0]),
    banned=st.sampled_from([0.0, 0.5, 0.98]),
    it=st.builds(
        Settings,
        temperature=st.sampled_from([1e-4, 0.1, 0.7, 1.0, 2.0, 100.0]),
        top_k=st.sampled_from([0, 0, 1, 2, 20, 64, 65, 500]),
        min_p=st.sampled_from([0.0, 1e-6, 0.05, 1.0]),
        top_p=st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 0.5, 0.75, 0.9, 0.99, 0.9999999, 1.0]),
    ),
)
def test_no_token_outside_the_allowed_set_is_ever_drawn(
    width: int, seed: int, spread: float, banned: float, it: Settings
) -> None:
    logits = logits_of(width, seed, spread, banned)
    for way in ways(it):
        assert outside(drawn(way, logits, it, some_u(30, seed)), logits, it) == set(), way


@pytest.fixture
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running sums as a GPU makes them: each is rounded in its own way."""
    cumsum, rng = mx.cumsum, np.random.default_rng(0)

    def rounded(x: mx.array, axis: int) -> mx.array:
        ulps = rng.integers(-2, 3, x.shape).astype(np.float32)
        return cumsum(x, axis=axis) * mx.array(1 + ulps * np.float32(2**-23))

    monkeypatch.setattr(mx, "cumsum", rounded)


@pytest.mark.usefixtures("restless")
def test_sums_that_are_rounded_each_in_its_own_way_lead_to_no_token_outside() -> None:
    u = np.concatenate([some_u(200), np.full((200, NUMBERS), LARGEST)])
    for seed, width in enumerate((2, 63, 64, 200, 1000, 4097)):
        for it in (
            Settings(),
            Settings(top_p=0.99),
            Settings(min_p=0.05),
            Settings(top_k=20),
            Settings(top_k=500, top_p=0.9),
        ):
            logits = logits_of(width, seed, 0.01, 0.5)
            for way in ways(it):
                assert outside(drawn(way, logits, it, u), logits, it) == set(), (way, it)


def test_control_a_token_outside_is_noticed() -> None:
    tokens = drawn("wide", LOGITS, Settings(), some_u(500))
    for it in (Settings(top_k=20), Settings(min_p=0.2), Settings(top_p=0.5)):
        assert outside(tokens, LOGITS, it)


@pytest.mark.parametrize("width", [2, 64, 130, 5000])
def test_settings_that_leave_one_token_give_the_greedy_one(width: int) -> None:
    logits = (np.random.default_rng(width).normal(size=width) * 3).astype(np.float32)
    for it in (
        Settings(top_k=1),
        Settings(top_p=0.0),
        Settings(top_p=1e-12),
        Settings(top_k=2, top_p=0.0),
        Settings(min_p=1.0),
        Settings(min_p=1.0, top_p=0.9),
        Settings(temperature=1e-4),
        Settings(temperature=1e-4, top_p=0.9),
        Settings(temperature=1e-4, top_k=2),
    ):
        for way in ways(it):
            assert set(drawn(way, logits, it, some_u(20)).tolist()) == {logits.argmax()}, (way, it)


def test_the_ends_of_the_number_range_give_the_first_and_last_possible_token() -> None:
    logits = np.full(200, -np.inf, np.float32)
    logits[[70, 74, 140]] = 0.0  # of groups 2, 2 and 0 of the four
    u = np.array([[0.0, 0.0], [LARGEST, LARGEST], [LARGEST, 0.0]]).repeat(draw.TRIES, axis=1)
    assert drawn("wide", logits, Settings(), u).tolist() == [140, 74, 70]
    assert drawn("wide", logits, Settings(top_p=0.9), u).tolist() == [140, 74, 70]
    by_place, by_group = [70, 140], [140, 74]  # as they stand in for equals
    assert drawn("ranked", logits, Settings(top_k=3), u[:2]).tolist() == by_place
    tokens = drawn("narrow", logits, Settings(top_k=3), u[:2]).tolist()
    assert tokens in (by_place, by_group)  # the first if so few tokens are no groups, on a GPU


def test_the_largest_number_times_a_total_never_rounds_up_to_it() -> None:
    """There would be no sum above it."""
    totals = (1 + np.arange(2**23) * 2.0**-23).astype(np.float32)  # every mantissa
    assert (np.float32(LARGEST) * totals < totals).all()


def test_draws_that_all_miss_the_nucleus_give_the_most_likely_token() -> None:
    logits = np.zeros(100, np.float32)
    logits[5] = 6.0
    u = np.full((1, NUMBERS), LARGEST)
    assert drawn("wide", logits, Settings(), u).tolist() == [99]
    assert drawn("wide", logits, Settings(top_p=0.75), u).tolist() == [5]


def test_equal_logits_are_all_possible() -> None:
    for it in (Settings(), Settings(top_p=0.999), Settings(temperature=100.0), Settings(top_k=64)):
        for way in ways(it):
            width = it.top_k or 96
            tokens = drawn(way, np.zeros(width, np.float32), it, some_u(3000))
            assert set(tokens.tolist()) == set(range(width)), way


# -- rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [100, 5000])
@pytest.mark.parametrize("way", ["wide", "narrow", "ranked"])
def test_a_row_draws_the_same_token_whoever_its_neighbours_are(width: int, way: str) -> None:
    rng = np.random.default_rng(width)
    rows = 16
    x = mx.array((rng.normal(size=(rows, width)) * 2).astype(np.float32))
    u = mx.array(rng.random((rows, 2, draw.TRIES), dtype=np.float32))

    def settings_from(*values: float) -> mx.array:
        return mx.array(rng.choice(values, (rows, 1)).astype(np.float32))

    temperature, least = settings_from(0.3, 1.0, 2.0), mx.log(settings_from(0.0, 0.01, 0.2))
    top_k = mx.array(rng.integers(1, 65, (rows, 1)))
    columns = {
        "wide": (temperature, least, settings_from(0.8, 0.9, 0.99, OFF)),
        "narrow": (temperature, least, top_k, settings_from(0.2, 0.9, OFF)),
        "ranked": (temperature, least, top_k, settings_from(0.2, 0.9, OFF)),
    }[way]

    def tokens(take: Array) -> Array:
        chosen = mx.array(take)
        return np.array(pick(way, x[chosen], u[chosen], *(part[chosen] for part in columns)))

    together = tokens(np.arange(rows))
    shuffled = rng.permutation(rows)
    np.testing.assert_array_equal(tokens(shuffled), together[shuffled])
    np.testing.assert_array_equal(tokens(np.arange(3, 10)), together[3:10])
    for row in range(rows):
        assert tokens(np.array([row])) == together[row]


def unlike_alone(rows: int, off: float) -> int:
    """Rows that get another token beside rows that use top_p and min_p than without them."""
    rng = np.random.default_rng(rows)
    x = mx.array((rng.normal(size=(rows, 300)) * 2).astype(np.float32))
    u = mx.array(some_u(rows)[:rows].astype(np.float32)).reshape(rows, 2, -1)
    temperature = mx.array(rng.choice([0.3, 1.0, 5.0], (rows, 1)).astype(np.float32))
    uses = rng.random((rows, 2)) < 0.5
    least = mx.log(mx.array(np.where(uses[:, :1], 0.05, 0.0).astype(np.float32)))
    top_p = mx.array(np.where(uses[:, 1:], 0.8, off).astype(np.float32))
    beside = np.array(pick("wide", x, u, temperature, least, top_p))
    unlike = 0
    for has_min_p in (False, True):
        for has_top_p in (False, True):
            mine = np.flatnonzero((uses == (has_min_p, has_top_p)).all(axis=1))
            at = mx.array(mine)
            settings = (least[at] if has_min_p else None, top_p[at] if has_top_p else None)
            alone = np.array(pick("wide", x[at], u[at], temperature[at], *settings))
            unlike += int((alone != beside[mine]).sum())
    return unlike


def test_a_setting_that_only_neighbours_use_does_not_change_a_row() -> None:
    assert unlike_alone(2000, OFF) == 0


def test_control_a_top_p_that_is_not_quite_off_is_noticed() -> None:
    assert unlike_alone(2000, 0.99) > 0


# -- numbers -------------------------------------------------------------------------------


def test_numbers_are_uniform_and_every_seed_and_position_has_its_own() -> None:
    seeds, steps = range(-10, 10), 500
    made = draw.uniforms(seeds, [0] * len(seeds), steps)
    assert made.shape == (steps, len(seeds), 2, draw.TRIES)
    made = made.reshape(steps, len(seeds), NUMBERS)
    assert made.dtype == np.float32
    assert made.min() >= 0
    assert made.max() <= LARGEST
    values = made.reshape(-1, NUMBERS)
    assert len({tuple(row) for row in values.tolist()}) == len(values)
    tens = (made * 10).astype(int)
    cells = [
        *((made[:, :, at] * 100).astype(int) for at in range(NUMBERS)),
        *(tens[:, :, at] * 10 + tens[:, :, at + 1] for at in range(NUMBERS - 1)),
        tens[:-1, :, 0] * 10 + tens[1:, :, 0],  # neighbouring positions
        tens[:, :-1, 0] * 10 + tens[:, 1:, 0],  # neighbouring seeds
    ]
    for mine in cells:
        counts = np.bincount(mine.flatten(), minlength=100)
        assert excess(counts, np.full(100, mine.size / 100)) < 5


def test_numbers_depend_on_their_rows_seed_and_position_alone() -> None:
    together = draw.uniforms([1, 2, 1, -1], [0, 0, 7, 5], 9)
    for at, (seed, position) in enumerate([(1, 0), (2, 0), (1, 7), (2**64 - 1, 5)]):
        for step in range(9):
            alone = draw.uniforms([seed], [position + step], 1)
            np.testing.assert_array_equal(alone[0, 0], together[step, at])
    assert (together[7, 0] == together[0, 2]).all()
    assert (together[0, 0] != together[0, 1]).any()


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
    newest = rng.integers(10, width, rows)
    newest[2:4] = -1
    columns = (repetition, 1 / repetition, presence, frequency)
    given = (x, newest, seen.astype(np.float32), counts, *columns)
    arrays = [mx.array(part) for part in given]
    counts = counts.copy()
    counts[[0, 1, 4, 5], newest[[0, 1, 4, 5]]] += 1
    expected = x.astype(np.float64)
    touched = seen | (counts > 0)
    scaled = np.where(expected > 0, expected / repetition, expected * repetition)
    expected = np.where(touched, scaled, expected)
    expected = expected - frequency * counts - np.where(counts > 0, presence, 0)
    result, counted = (np.array(part) for part in draw.penalise(*arrays))
    np.testing.assert_array_equal(counted, counts)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result[0], x[0])
