"""An answer, whoever gave it, and whether two of them are the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bushel.core import Output, TokenLogprob
from tests.families.checkpoint import VOCAB
from tests.parity.run import BOUND, WIDER


@dataclass
class Choice:
    """tokens: ids, or their names. likeliest: log-probabilities at each place, in one order."""

    tokens: list[Any]
    text: str
    finish: str | None
    likeliest: list[np.ndarray] = field(default_factory=list)
    prompt: list[float] = field(default_factory=list)  # log-probabilities of the prompt's tokens


@dataclass
class Answer:
    choices: list[Choice]
    error: str | None = None
    cached: int = 0


@dataclass(frozen=True)
class Verdict:
    """tie: the same distribution, of which another token was drawn: rounding can do that once."""

    wrong: str = ""
    tie: bool = False


def answer_of(output: Output) -> Answer:
    choices = [
        Choice(
            list(choice.token_ids),
            choice.text,
            choice.finish_reason,
            [_row(entry) for entry in choice.logprobs or ()],
            [entry.logprob for entry in choice.prompt_logprobs or () if entry is not None],
        )
        for choice in output.choices
    ]
    return Answer(choices, output.error, output.usage.cached_tokens)


def _row(entry: TokenLogprob) -> np.ndarray:
    """By token where all are told."""
    ids, values = zip(*entry.top, strict=True)
    if len(ids) < VOCAB:
        return np.array(values)
    row = np.empty(VOCAB)
    row[list(ids)] = values
    return row


def compare(family: str, got: Answer, alone: Answer, *, aborted: bool, greedy: bool) -> Verdict:
    ended = got.error is not None or not aborted
    if ended and (got.error is None) != (alone.error is None):
        return Verdict(f"error {got.error!r}, alone {alone.error!r}")
    verdicts = [
        _compare(WIDER.get(family, BOUND), one, two, aborted, greedy)
        for one, two in zip(got.choices, alone.choices, strict=False)
    ]
    if len(got.choices) != len(alone.choices) and alone.error is None:
        return Verdict(f"{len(got.choices)} choices, not {len(alone.choices)}")
    wrong = "; ".join(f"choice {at}: {it.wrong}" for at, it in enumerate(verdicts) if it.wrong)
    return Verdict(wrong, any(verdict.tie for verdict in verdicts))


def _compare(bound: float, got: Choice, alone: Choice, aborted: bool, greedy: bool) -> Verdict:
    cut = aborted and got.finish == "abort"
    expected = alone.tokens[: len(got.tokens)] if cut else alone.tokens
    pairs = zip(got.tokens, expected, strict=False)
    same = next((at for at, (one, two) in enumerate(pairs) if one != two), None)
    most = min(len(got.tokens), len(expected))
    # The first token that differs was still drawn after the same ones.
    comparable = most if same is None else same + 1
    off = _apart(got.likeliest[:comparable], alone.likeliest[:comparable])
    off = max(off, _apart(got.prompt, alone.prompt) if not cut else 0.0)
    if not off <= bound:
        return Verdict(f"log-probabilities off by {off:.2g} in {comparable} tokens")
    if same is not None:
        best, second = np.sort(alone.likeliest[same])[::-1][:2]
        if greedy and best - second > 2 * bound:
            return Verdict(f"token {same} is {got.tokens[same]}, not {expected[same]}")
        return Verdict(tie=True)
    if len(got.tokens) != len(expected):
        return Verdict(f"{len(got.tokens)} tokens, not {len(expected)}")
    if not cut and (got.finish, got.text) != (alone.finish, alone.text):
        return Verdict(f"{got.finish} {got.text!r}, not {alone.finish} {alone.text!r}")
    return Verdict()


def _apart(got: Any, alone: Any) -> float:
    """Largest difference; equal infinities do not differ, and not a number does."""
    if not len(got) or not len(alone):
        return 0.0
    if len(got) != len(alone):
        return float("inf")
    one, two = np.array(got), np.array(alone)
    if one.shape != two.shape:
        return float("inf")
    with np.errstate(invalid="ignore"):
        off = np.where(one == two, 0.0, np.abs(one - two))
    return float(np.max(off)) if not np.isnan(off).any() else float("inf")
