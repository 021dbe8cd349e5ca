"""Rows with drafts say what they say alone, one token after the other, with every kind of layer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from bushel.core.options import Attention
from tests.cache.paged import host_kernels
from tests.depth import often

from .draft_mistakes import (
    not_rolled_back,
    one_ahead_in_kernels,
    one_ahead_in_pages,
    one_ahead_in_ragged_rows,
    one_ahead_in_rings,
    one_later,
    one_less,
    one_more,
    stale_token,
)
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

# Each kind of layer that goes back in its own way.
KINDS: list[tuple[str, Attention]] = [
    *((name, "auto") for name in ("llama", "gemma3_text", "qwen3_5")),
    *((name, "pages") for name in ("llama", "qwen3_5")),
]


Mistake = tuple[Callable[[pytest.MonkeyPatch], None], str, Attention]
# Explicit positions are for models of images; others read them from their state.
MISTAKES: list[Mistake] = [
    *((mistake, *kind) for mistake in (one_more, one_less, not_rolled_back) for kind in KINDS),
    (stale_token, "llama", "auto"),
    (one_later, "qwen3_5_vl", "auto"),
    *((one_ahead_in_ragged_rows, name, "auto") for name in ("llama", "gemma3_text", "gpt_oss")),
    *((one_ahead_in_ragged_rows, name, "auto") for name in ("qwen3_5", "qwen3_5_vl")),
    *((one_ahead_in_rings, name, "auto") for name in ("llama_sliding", "gemma3_text", "gpt_oss")),
    *((one_ahead_in_pages, name, "pages") for name in PAGED),
]
ONCE: list[Mistake] = [
    (one_more, "llama", "auto"),
    (one_ahead_in_ragged_rows, "qwen3_5_vl", "auto"),
    (one_ahead_in_rings, "gpt_oss", "auto"),
    (one_ahead_in_pages, "llama", "pages"),
]


@pytest.mark.parametrize(
    ("mistake", "name", "attention"),
    often(MISTAKES, *ONCE),
    ids=lambda of: getattr(of, "__name__", of),
)
def test_a_mistake_with_drafts_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None],
    name: str,
    attention: Attention,
    monkeypatch: pytest.MonkeyPatch,
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


@pytest.mark.long
def test_a_kernel_that_looks_ahead_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kernels attend to pages, as on a GPU; with theirs as they are, nothing is. B64."""
    host_kernels.everywhere(monkeypatch)
    check("llama", "pages", churn)
    one_ahead_in_kernels(monkeypatch)
    host_kernels.everywhere(monkeypatch)
    result = churn(subject("llama"), "pages", drafts=True)
    assert result.difference > 10 * BOUND, str(result)
