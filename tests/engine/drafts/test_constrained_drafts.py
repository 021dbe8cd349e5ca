"""Rows that are held to a grammar or a budget say the same with drafts and without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bushel import LLM, Output, SamplingParams
from bushel.engine.constraints import constraint
from bushel.engine.constraints.constraint import ConstrainedRow
from tests.engine.constrained_requests import Pair, shaped, talk, thinking, together, valid

PEOPLE: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"enum": ["Anna", "Bo"]}, "age": {"enum": [33, 34]}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "minItems": 4,
    "maxItems": 6,
}
SAID = '[{"name": "Anna", "age": 33}, {"name": "Bo", "age": 34}]'
PARAMS = SamplingParams(max_tokens=90, temperature=0.0, logprobs=0)
SETTINGS = (
    PARAMS,
    replace(PARAMS, temperature=1.0, seed=1),
    replace(PARAMS, temperature=0.8, top_p=0.9, repetition_penalty=1.1, seed=2),
    replace(PARAMS, min_tokens=40, seed=3),
    replace(PARAMS, dry_multiplier=0.4, seed=4),
)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("bushel:tiny", dtype="float32") as llm:
        yield llm


def company(*, speculate: bool) -> list[Pair]:
    """Held rows and free ones; a reply of people repeats itself, and what was asked."""
    pairs: list[Pair] = []
    for at, params in enumerate(SETTINGS):
        mine = replace(params, speculate=speculate)
        pairs.append((shaped(f"Repeat {SAID}, and {at} more.", PEOPLE), mine))
        pairs.append((talk(f"Say this again: {SAID} {at}"), replace(mine, max_tokens=30)))
        pairs.append((thinking(f"Count: 1, 2, 3, 4, {at}", 9), replace(mine, max_tokens=40)))
    return pairs


def accepted(outs: list[Output]) -> int:
    return sum(out.usage.accepted_tokens for out in outs)


def unlike(some: list[Output], others: list[Output]) -> int:
    """Replies of which tokens or log-probabilities are others."""
    found = 0
    for one, other in zip(some, others, strict=True):
        pairs = zip(one.logprobs or (), other.logprobs or (), strict=False)
        same = one.token_ids == other.token_ids and one.error == other.error
        found += not same or any(abs(a.logprob - b.logprob) > 1e-4 for a, b in pairs)
    return found


@pytest.fixture(scope="module")
def plain(llm: LLM) -> list[Output]:
    outs = together(llm, company(speculate=False))
    assert not any(out.error for out in outs)
    assert not any(out.usage.drafted_tokens for out in outs)
    return outs


def test_a_row_that_ends_before_its_first_token_spoils_no_round(llm: LLM) -> None:
    """Others draft on, however many such come: rows of a round that failed would not."""
    endless = {**talk("Hi"), "shape": {"regex": "x{0}"}}
    drafts = talk("Say this again: one two three one two three one two three")
    long = llm.submit(drafts, SamplingParams(max_tokens=160, temperature=0, ignore_eos=True))
    ended = []
    while not long.done:
        if len(ended) < 5 and long.output.token_ids and (not ended or ended[-1].done):
            params = SamplingParams(max_tokens=20, min_tokens=3, temperature=0)
            ended.append(llm.submit(endless, params))
        llm.step()
        llm.check_integrity()
    assert [bool(handle.output.error) for handle in ended] == [True] * 5
    assert not any(handle.output.token_ids for handle in ended)
    assert long.output.usage.accepted_tokens > 60


def test_a_reply_that_can_neither_go_on_nor_end_is_the_same_up_to_there(llm: LLM) -> None:
    """Its last token is told, whoever was to guess it."""
    choices = {"choice": ["one two three", "one two four", "nine"]}
    asked = {**talk("Count on: 1, 2, 3, 4, 5, 6"), "shape": choices, "prediction": "nine"}
    params = SamplingParams(max_tokens=5, min_tokens=6, temperature=0)
    drafted, plain = (
        llm.generate(asked, replace(params, speculate=speculate))[0] for speculate in (True, False)
    )
    for out in (drafted, plain):
        assert "neither go on nor end" in (out.error or "")
        assert out.text == "nine"
    assert drafted.token_ids == plain.token_ids
    assert drafted.usage.drafted_tokens > 0 == plain.usage.drafted_tokens
    llm.check_integrity()


def test_held_rows_say_with_drafts_what_they_say_without(llm: LLM, plain: list[Output]) -> None:
    """In one batch with free rows; every reply that ends is what its schema wants."""
    outs = together(llm, company(speculate=True))
    llm.check_integrity()
    assert unlike(outs, plain) == 0
    for first in range(3):  # of each kind
        assert accepted(outs[first::3]) > 0
    for out in outs[::3]:
        if out.finish_reason == "stop":
            valid(out, PEOPLE)


@pytest.mark.long
def test_rows_with_and_without_drafts_go_side_by_side(llm: LLM, plain: list[Output]) -> None:
    drafting, others = company(speculate=True), company(speculate=False)
    pairs = [drafting[at] if at % 2 else others[at] for at in range(len(drafting))]
    outs = together(llm, pairs)
    assert unlike(outs, plain) == 0
    assert accepted(outs[1::2]) > 0 == accepted(outs[::2])


@pytest.mark.long
def test_control_masks_of_another_place_change_what_is_said(
    llm: LLM, plain: list[Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ConstrainedRow.allow_along

    def allow_along(self: Any, draft: Any, words: Any, *more: Any) -> list[int]:
        allowed = own(self, draft, words, *more)
        words[1:] = words[:-1].copy()
        return allowed

    monkeypatch.setattr(ConstrainedRow, "allow_along", allow_along)
    outs = together(llm, company(speculate=True))
    assert unlike(outs, plain) > 0


def test_a_grammar_that_takes_too_long_along_drafts_fails_alone(
    llm: LLM, plain: list[Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constraint, "_SLOW", -1.0)
    monkeypatch.setattr(constraint, "_MOST_SLOW", 0.001)
    outs = together(llm, company(speculate=True)[:2])
    assert "takes too long" in (outs[0].error or "")
    assert outs[1].token_ids == plain[1].token_ids
