"""Tokens that are guessed ahead, as a script sees them: none of them changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bushel import LLM, BushelError, RequestError

TEXT = "one two three four five six seven eight nine ten. " * 3
LOOP = {"max_tokens": 48, "ignore_eos": True}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("bushel:tiny", speculate="lookup") as made:
        yield made


SAMPLED = {"temperature": 0.5, "seed": 3}


@pytest.mark.parametrize("more", [{}, SAMPLED], ids=str)
def test_a_reply_is_the_same_with_guesses_and_without(llm: LLM, more: dict[str, Any]) -> None:
    """Token by token, with log-probabilities; usage tells which of them had any. B70, B84."""
    params = {**LOOP, **more, "logprobs": 0}
    [guessed] = llm.generate(TEXT, params)
    [plain] = llm.generate(TEXT, {**params, "speculate": False})
    assert guessed.token_ids == plain.token_ids
    assert guessed.logprobs is not None
    assert plain.logprobs is not None
    assert [each.logprob for each in guessed.logprobs] == pytest.approx(
        [each.logprob for each in plain.logprobs], abs=1e-4
    )
    assert guessed.usage.drafted_tokens >= guessed.usage.accepted_tokens
    assert guessed.usage.accepted_tokens > 0
    assert (plain.usage.drafted_tokens, plain.usage.accepted_tokens) == (0, 0)


def test_several_tokens_come_at_once_where_guesses_hold(llm: LLM) -> None:
    events = list(llm.stream({"prompt": TEXT}, LOOP))
    held = [event for event in events if event.accepted]
    assert held
    for event in events:
        assert event.accepted <= min(event.drafted, len(event.token_ids))
    assert sum(len(event.token_ids) for event in events) == LOOP["max_tokens"]


def test_a_prediction_is_guessed_from(llm: LLM) -> None:
    asked = [{"role": "user", "content": "What is 3 + 4?"}]
    [plain] = llm.chat(asked)
    [predicted] = llm.chat(asked, prediction=plain.text)
    assert predicted.text == plain.text
    assert predicted.usage.accepted_tokens > plain.usage.accepted_tokens
    assert predicted.usage.prompt_tokens == plain.usage.prompt_tokens


def test_what_cannot_guess_is_refused() -> None:
    with pytest.raises(BushelError, match="speculate must be one of auto, off, lookup, mtp"):
        LLM("bushel:tiny", speculate="ngram")


def test_what_is_no_prediction_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="prediction must be a string"):
        llm.chat([{"role": "user", "content": "Hi"}], prediction=5)  # type: ignore[arg-type]
