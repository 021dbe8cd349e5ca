"""The judge of replies that part tells an edge from a mistake, and lets few edges pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bushel import LLM, Output, SamplingParams
from bushel.core import Decoding
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.sampling import draw
from bushel.engine.sampling.vectorised import VectorisedChooser
from tests.depth import often
from tests.engine.constrained_requests import Pair, shaped, talk, together
from tests.engine.draw_mistakes import number_of_another_place
from tests.engine.edge_of_a_draw import Edges, drawn, redraw, request_of
from tests.engine.numpy_sampling import VOCAB, decoding

POSITION = 9
SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.6},
    {"temperature": 1.5},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 0.4},
    {"temperature": 0.8, "top_k": 20, "min_p": 0.02},
    {"temperature": 1.0, "top_k": 100},
    {"temperature": 1.0, "typical_p": 0.8, "xtc_probability": 0.5},
]


def logits_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, VOCAB).astype(np.float32)


def token_of(logits: np.ndarray, row: Decoding, position: int = POSITION) -> int:
    [token] = drawn(logits[None], draw.uniforms([row.seed], [position], 1)[0], row)
    return token


def border(token_at: Callable[[float], int], low: float, high: float) -> tuple[float, float]:
    """A millionth of a logit apart, and what is drawn there differs, as it does at both ends."""
    first = token_at(low)
    assert token_at(high) != first
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if token_at(middle) == first else (low, middle)
    return low, high


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_tokens_on_both_sides_of_an_edge_are_explained(settings: dict[str, Any]) -> None:
    """Logits that are a millionth apart draw both of them; those that are a hundredth off do not,
    as a rule.
    """
    wrongly = 0
    for seed in range(4):
        logits, row = logits_of(seed), decoding(seed=seed, **settings)
        others = np.argsort(-logits)
        raised = np.zeros(VOCAB, np.float32)
        raised[others[others != token_of(logits, row)][0]] = 1

        def token_at(bias: float) -> int:
            return token_of(logits + np.float32(bias) * raised, row)  # noqa: B023

        sides = border(token_at, 0.0, 20.0)
        tokens = token_at(sides[0]), token_at(sides[1])
        for side in sides:
            assert redraw(logits + np.float32(side) * raised, row, POSITION).edge(*tokens)
        off = logits + np.float32(sides[0] - 0.01) * raised
        wrongly += redraw(off, row, POSITION).edge(*tokens)
    assert wrongly <= 1


Draws = tuple[np.ndarray, np.ndarray]  # logits [N, V] and numbers [N, 2, K]
# What a mistake draws from, instead of these logits with the numbers of these seeds.
Mistake = Callable[[np.ndarray, list[int]], Draws]


def numbers_of(seeds: list[int], position: int = POSITION) -> np.ndarray:
    return draw.uniforms(seeds, [position] * len(seeds), 1)[0]


def number_of_the_next_place(logits: np.ndarray, seeds: list[int]) -> Draws:
    return logits, numbers_of(seeds, POSITION + 1)


def number_of_another_seed(logits: np.ndarray, seeds: list[int]) -> Draws:
    return logits, numbers_of([seed + 1 for seed in seeds])


def mask_of_another_place(logits: np.ndarray, seeds: list[int]) -> Draws:
    allowed = np.random.default_rng(0).random(logits.shape) < 0.7
    return np.where(allowed, logits, -np.inf).astype(np.float32), numbers_of(seeds)


def logits_a_hundredth_off(logits: np.ndarray, seeds: list[int]) -> Draws:
    noise = np.random.default_rng(0).normal(0, 0.01, logits.shape)
    return (logits + noise).astype(np.float32), numbers_of(seeds)


@pytest.mark.parametrize(
    ("mistake", "draws", "most"),
    [
        (number_of_the_next_place, 40, 0),
        (number_of_another_seed, 40, 0),
        (mask_of_another_place, 120, 0),
        # Where it changes a draw at all, the number lies some thousandths from a border or nearer.
        (logits_a_hundredth_off, 2000, 0.15),
    ],
)
def test_control_what_a_mistake_draws_is_not_explained(
    mistake: Mistake, draws: int, most: float
) -> None:
    seeds, row = [*range(draws)], decoding(temperature=1.0)
    logits = np.stack([logits_of(seed % 10) for seed in seeds])
    right, wrong = drawn(logits, numbers_of(seeds), row), drawn(*mistake(logits, seeds), row)
    explained = [
        redraw(logits[seed], replace(row, seed=seed), POSITION).edge(right[seed], wrong[seed])
        for seed in seeds
        if wrong[seed] != right[seed]
    ]
    assert len(explained) > 20
    assert sum(explained) <= most * len(explained)


# -- replies ------------------------------------------------------------------------------

HELD = SamplingParams(max_tokens=60, temperature=1.0, logprobs=0)
PEOPLE: list[Pair] = [(shaped(f"Person {at}?"), replace(HELD, seed=at)) for at in range(8)]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("bushel:tiny", dtype="float32") as llm:
        yield llm


@pytest.fixture(scope="module")
def plain(llm: LLM) -> list[Output]:
    return together(llm, [(it, replace(params, speculate=False)) for it, params in PEOPLE])


def compared(llm: LLM, outputs: list[Output], plain: list[Output], most: int = 0) -> Edges:
    edges = Edges(llm, most)
    for pair, output, right in zip(PEOPLE, outputs, plain, strict=True):
        edges.compare(request_of(llm, *pair), output, right)
    return edges


def test_replies_that_part_at_an_edge_pass_as_often_as_they_may(llm: LLM) -> None:
    """And no farther from it than rounding comes."""
    asked = talk("Tell me something."), replace(HELD, max_tokens=8, seed=3)

    def reply(bias: float) -> Output:
        params = replace(asked[1], logit_bias={380: bias})
        [output] = together(llm, [(asked[0], params)])
        return output

    low, high = border(lambda bias: reply(bias).token_ids[0], -20.0, 40.0)
    request = request_of(llm, asked[0], replace(asked[1], logit_bias={380: low}))
    edges = Edges(llm, 1)
    edges.compare(request, reply(low), reply(high))
    assert len(edges.found) == 1
    with pytest.raises(AssertionError, match="one run drew"):
        edges.compare(request, reply(low), reply(high))  # one too many
    off = request_of(llm, asked[0], replace(asked[1], logit_bias={380: low - 0.02}))
    with pytest.raises(AssertionError, match="one run drew"):
        Edges(llm, 1).compare(off, reply(low), reply(high))


def number_of_another_row(patch: pytest.MonkeyPatch) -> None:
    own = VectorisedChooser._uniforms
    patch.setattr(VectorisedChooser, "_uniforms", lambda *args: np.roll(own(*args), 1, axis=0))


def mask_of_the_place_before(patch: pytest.MonkeyPatch) -> None:
    """As well as the place's own, wherever both allow something: what it lets through is valid."""
    own = ConstrainedRow.allow_along

    def allow_along(row: Any, draft: Any, words: np.ndarray, *more: Any) -> list[int]:
        allowed = own(row, draft, words, *more)
        both = words[1:] & words[:-1]
        words[1:] = np.where(both.any(axis=1, keepdims=True), both, words[1:])
        return allowed

    patch.setattr(ConstrainedRow, "allow_along", allow_along)


MISTAKES = (number_of_another_place, number_of_another_row, mask_of_the_place_before)


@pytest.mark.parametrize("mistake", often(MISTAKES, mask_of_the_place_before))
def test_control_a_mistake_along_drafts_is_no_edge(
    mistake: Callable[[pytest.MonkeyPatch], None], llm: LLM, plain: list[Output]
) -> None:
    outputs = together(llm, PEOPLE)
    assert sum(output.usage.accepted_tokens for output in outputs) > 0
    assert compared(llm, outputs, plain).found == []
    with pytest.MonkeyPatch.context() as patch:
        mistake(patch)
        wrong = together(llm, PEOPLE)
    with pytest.raises(AssertionError, match="one run drew"):
        compared(llm, wrong, plain, most=len(plain))
