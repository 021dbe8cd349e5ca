"""What a grammar forces is drafted, and nothing else comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from bushel import LLM, Output, SamplingParams
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.drafts.acceptance import Acceptance
from bushel.engine.drafts.grammar import GrammarDrafter, _GrammarRow
from bushel.engine.drafts.lookup import PromptLookup
from tests.engine.constrained_requests import talk, together

KEYS = ("the_name_of_the_person", "the_age_of_the_person", "is_still_there")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        KEYS[0]: {"type": "string", "maxLength": 8},
        KEYS[1]: {"type": "integer", "minimum": 0, "maximum": 9},
        KEYS[2]: {"type": "boolean"},
    },
    "required": [*KEYS],
    "additionalProperties": False,
}


def asked(speculate: bool = True) -> list[Any]:
    pairs: list[Any] = [
        (
            {**talk(f"Person {at}?"), "shape": {"json_schema": SCHEMA}},
            SamplingParams(
                max_tokens=200, temperature=0.8, seed=at, logprobs=0, speculate=speculate
            ),
        )
        for at in range(4)
    ]
    return [*pairs, (talk("Who are you?"), SamplingParams(max_tokens=20, temperature=0.0))]


@pytest.fixture(scope="module")
def plain() -> list[Output]:
    with LLM("bushel:tiny", dtype="float32", speculate="off") as llm:
        return together(llm, asked())


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """In which nobody else guesses."""
    monkeypatch.setattr(PromptLookup, "chances", lambda self, *_: [()] * len(self._rows))
    with LLM("bushel:tiny", dtype="float32", speculate="lookup") as llm:
        yield llm


def alike(outputs: list[Output], plain: list[Output]) -> None:
    for output, right in zip(outputs, plain, strict=True):
        assert output.token_ids == right.token_ids
        for one, other in zip(output.logprobs or (), right.logprobs or (), strict=True):
            assert abs(one.logprob - other.logprob) < 1e-4


def test_keys_are_drafted_and_the_replies_are_the_same(llm: LLM, plain: list[Output]) -> None:
    """Beside a row that is free, and gets no drafts. B70, B84."""
    outputs = together(llm, asked())
    alike(outputs, plain)
    *held, free = outputs
    for output in held:
        json.loads(output.text)
        keys = sum(len(key) for key in KEYS) / len(output.text)
        assert output.usage.accepted_tokens > keys * len(output.token_ids) / 2
        assert output.usage.accepted_tokens >= 0.7 * output.usage.drafted_tokens
    assert free.usage.drafted_tokens == 0
    llm.check_integrity()


def test_rows_that_want_no_drafts_get_none(llm: LLM, plain: list[Output]) -> None:
    outputs = together(llm, asked(speculate=False))
    alike(outputs, plain)
    assert sum(output.usage.drafted_tokens for output in outputs) == 0


@pytest.mark.long
def test_a_grammar_that_says_other_tokens_changes_nothing(
    llm: LLM, plain: list[Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it names is verified as any draft is; and soon less of it is drafted."""
    own = ConstrainedRow.forced_ahead
    right = sum(output.usage.drafted_tokens for output in together(llm, asked()))

    def other(row: ConstrainedRow, limit: int) -> list[int]:
        return own(row, limit)[::-1]

    monkeypatch.setattr(ConstrainedRow, "forced_ahead", other)
    outputs = together(llm, asked())
    alike(outputs, plain)
    wrong = sum(output.usage.drafted_tokens for output in outputs)
    assert 0 < wrong < right / 2


def test_what_is_on_the_device_is_the_first_of_what_is_forced(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = GrammarDrafter.chances
    seen: list[tuple[int, int]] = []

    def noted(drafter: GrammarDrafter, ahead: int, most: int) -> Any:
        found = own(drafter, ahead, most)
        for row, chances in zip(drafter._rows, found, strict=True):
            if row is not None and ahead and row._forced:
                seen.append((len(chances), len(row._forced) - ahead))
        return found

    monkeypatch.setattr(GrammarDrafter, "chances", noted)
    together(llm, asked())
    assert seen
    assert all(chances <= max(0, left) for chances, left in seen)


def test_a_grammar_whose_drafts_failed_is_tried_again_after_a_while() -> None:
    """Nobody would see that what it forces is said now."""
    constrained = SimpleNamespace(forced_ahead=lambda most: [5, 6, 7])
    record = Acceptance(0.9)
    reply: Any = SimpleNamespace(
        tokens=[], done=False, draft_room=100, constrained=constrained,
        decoding=SimpleNamespace(end_ids=frozenset()), accepted_from=lambda *_: record,
    )  # fmt: skip
    row = _GrammarRow(reply)
    fresh = row.chances(0, 7)
    for _ in range(40):
        reply.tokens.append(1)
        row.propose(3)
        row.count(0)
    assert row.chances(0, 7)[0] < 0.3
    reply.tokens += [1] * 5000
    assert row.chances(0, 7) == fresh


def test_where_little_is_forced_the_grammar_is_seldom_asked() -> None:
    """An engine would have to wait for each token to see whether it is."""
    record = Acceptance(0.3)
    for said in range(40):
        record.count(0, True, said)
    assert record.retried(40) < 0.1
    assert record.retried(90) == pytest.approx(0.3)
