"""Rows with drafts say what they say alone, one token after the other, with every kind of layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bushel.core.options import Attention

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


def check(name: str, attention: Attention, scenario: Callable[..., Any]) -> None:
    result = scenario(subject(name), attention, drafts=True)
    assert result.ok, str(result)
    assert result.largest_batch > 1


@pytest.mark.parametrize(("name", "attention"), PLACES)
@pytest.mark.parametrize("scenario", [again, leaves])
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
