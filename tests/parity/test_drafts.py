"""Rows with drafts say what they say alone, one token after the other, with every kind of layer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bushel.cache import BatchState
from bushel.core.options import Attention
from bushel.engine.decode_batch import DecodeBatch
from bushel.engine.drafts.drafter import Drafts
from tests.depth import often

from .run import BOUND
from .scenarios import again, churn, fork, leaves
from .subject import subject

# One of each kind: plain keys and values, windows, windows with sinks, experts, recurrent layers
# in both libraries, and pages of the first and of the hybrids.
FAMILIES = ("llama", "gemma3_text", "gpt_oss", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_vl")
PAGED = ("llama", "qwen3_5", "qwen3_5_vl")
PLACES: list[tuple[str, Attention]] = [
    *((name, "auto") for name in FAMILIES),
    *((name, "pages") for name in PAGED),
]
HARD: list[tuple[str, Attention]] = [
    *(("gpt_oss", "auto"), ("qwen3_5_vl", "pages")),
]


def check(name: str, attention: Attention, scenario: Callable[..., Any]) -> None:
    result = scenario(subject(name), attention, drafts=True)
    assert result.ok, str(result)
    assert result.largest_batch > 1


@pytest.mark.parametrize(("name", "attention"), often(PLACES, *HARD))
@pytest.mark.parametrize("scenario", [again, pytest.param(leaves, marks=pytest.mark.long)])
def test_drafts_change_no_token_and_no_logprob(
    name: str, attention: Attention, scenario: Callable[..., Any]
) -> None:
    """Rows come, go, end in every way, and come again, some of them with drafts. B59, B70."""
    check(name, attention, scenario)


@pytest.mark.long
@pytest.mark.parametrize(("name", "attention"), PLACES)
@pytest.mark.parametrize("scenario", [churn, fork])
def test_drafts_in_every_scenario(
    name: str, attention: Attention, scenario: Callable[..., Any]
) -> None:
    """Prompts in small chunks beside rounds, and choices that part from one prompt. B59, B70."""
    check(name, attention, scenario)


# -- controls -----------------------------------------------------------------------------

Patch = pytest.MonkeyPatch
# Each kind of layer that goes back in its own way.
KINDS: list[tuple[str, Attention]] = [
    *((name, "auto") for name in ("llama", "gemma3_text", "qwen3_5")),
    *((name, "pages") for name in ("llama", "qwen3_5")),
]


def ends_with(patch: Patch, keep: Callable[[int, int], int]) -> None:
    """keep: of a row that keeps so many of its inputs, and had so many, what its state keeps."""
    begin, end = BatchState.begin_draft, BatchState.end_draft
    begun: list[int] = []

    def begin_draft(rows: BatchState, counts: Sequence[int]) -> None:
        begun[:] = counts
        begin(rows, counts)

    def end_draft(rows: BatchState, kept: Sequence[int]) -> None:
        end(rows, [keep(*pair) for pair in zip(kept, begun, strict=True)])

    patch.setattr(BatchState, "begin_draft", begin_draft)
    patch.setattr(BatchState, "end_draft", end_draft)


def one_more(patch: Patch) -> None:
    """The draft that did not hold is kept as well."""
    ends_with(patch, lambda kept, count: min(kept + 1, count))


def one_less(patch: Patch) -> None:
    """The last draft that held is forgotten."""
    ends_with(patch, lambda kept, _: max(kept - 1, 1))


def not_rolled_back(patch: Patch) -> None:
    ends_with(patch, lambda _, count: count)


def one_later(patch: Patch) -> None:
    """A draft is run as if it stood one place further on."""
    verify, where = DecodeBatch.verify, DecodeBatch._where

    def wrong(batch: DecodeBatch, drafts: Drafts) -> Any:
        patch.setattr(DecodeBatch, "_where", lambda own: [at + 1 for at in where(own)])
        try:
            return verify(batch, drafts)
        finally:
            patch.setattr(DecodeBatch, "_where", where)

    patch.setattr(DecodeBatch, "verify", wrong)


def stale_token(patch: Patch) -> None:
    """Rows go on from what they said before the last of their drafts."""
    finish = DecodeBatch.finish

    def wrong(batch: DecodeBatch, verify: Any, kept: Sequence[int]) -> None:
        finish(batch, verify, kept)
        batch._next = verify.inputs[:, :1]

    patch.setattr(DecodeBatch, "finish", wrong)


# Explicit positions are for models of images; others read them from their state.
MISTAKES = [
    *((mistake, *kind) for mistake in (one_more, one_less, not_rolled_back) for kind in KINDS),
    (stale_token, "llama", "auto"),
    (one_later, "qwen3_5_vl", "auto"),
]


@pytest.mark.parametrize(
    ("mistake", "name", "attention"),
    [
        pytest.param(*case, marks=() if at == 0 else pytest.mark.long)
        for at, case in enumerate(MISTAKES)
    ],
    ids=lambda of: getattr(of, "__name__", of),
)
def test_a_round_that_ends_wrongly_is_noticed(
    mistake: Callable[[Patch], None],
    name: str,
    attention: Attention,
    monkeypatch: Patch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the comparison, and not since anything raised."""
    mistake(monkeypatch)
    with caplog.at_level(logging.WARNING, "bushel"):
        result = churn(subject(name), attention, drafts=True)
    assert not result.ok
    assert result.difference > 10 * BOUND, str(result)
    raised = [record.getMessage() for record in caplog.records if record.name.startswith("bushel")]
    assert not raised
