"""With default settings `bushel:tiny` says what it says without drafts, whatever it is asked.

Requests come one after the other, into batches of every size, and some are given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from bushel import LLM, Output, SamplingParams
from bushel.engine import decode_batch
from bushel.engine.sampling.sampler import Sampler
from tests.depth import often
from tests.engine.constrained_requests import Pair, together
from tests.engine.draw_mistakes import number_of_another_place
from tests.engine.edge_of_a_draw import Edges, request_of
from tests.llm.request_builders import chat
from tools.tiny.evaluate import TASKS, to_request
from tools.tiny.words import Draw

FEW, MANY, AT_ONCE = 16, 1000, 60
EDGES = {FEW: 0, MANY: 2}  # replies that may part from their twins at the edge of a draw
# Prompts of thousands of tokens say nothing of drafts that shorter ones do not.
TAUGHT = [task for task in TASKS if "agent" not in task and "tokens" not in task]
NAMES = ("Ann", "Bo", "Cy", "Dee", "Ed")
# How replies are chosen; half of them greedily, whatever else is asked.
SETTINGS: list[dict[str, Any]] = [
    {},
    {"top_p": 0.9, "logprobs": None},
    {"top_k": 20, "min_p": 0.02, "logprobs": 5},
    {"repetition_penalty": 1.15},
    {"presence_penalty": 0.4, "frequency_penalty": 0.2},
    {"dry_multiplier": 0.6},
    {"stop": [" is", "5", "e."]},
    {"n": 2},
    {"min_tokens": 10, "logit_bias": {380: 2.0, 381: -2.0}},
    {"ignore_eos": True},
    {"speculate": False},
]


def repetitive(at: int) -> dict[str, Any]:
    """Records, lists and edits, which repeat what was asked."""
    name, other = NAMES[at % 5], NAMES[(at + 1 + at // 5) % 5]
    records = ", ".join(f'{{"name": "{it}", "age": {at % 50 + n}}}' for n, it in enumerate(NAMES))
    texts = (
        f"Say this again: {name} saw {other}, {other} saw {name}, {name} saw {other}.",
        f"Repeat [{records}] with {at} more.",
        f"Count on: {', '.join(str(at + n) for n in range(12))}",
        f"Replace {name} with {other} in: {(name + ' went home. ') * 4}",
    )
    return chat(texts[at % 4])


def asked(count: int) -> list[Pair]:
    pairs: list[Pair] = []
    for at in range(count):
        task = TAUGHT[at % len(TAUGHT)]
        make = TASKS[task]
        request = repetitive(at) if at % 4 == 3 else to_request(make(Draw(f"drafts {task} {at}")))
        warm = {} if at % 2 == 0 else {"temperature": (0.4, 0.8, 1.1)[at % 3], "seed": at}
        settings = {"temperature": 0.0, "max_tokens": 20, "logprobs": 1, **warm}
        pairs.append((request, SamplingParams(**{**settings, **SETTINGS[at % len(SETTINGS)]})))
    return pairs


def served(llm: LLM, pairs: list[Pair]) -> list[Output]:
    """Three before every step; some leave when they have begun to speak."""
    handles: list[Any] = []
    waiting = iter(pairs)
    while len(handles) < len(pairs) or not all(handle.done for handle in handles):
        handles += [llm.submit(*pair) for pair in islice(waiting, 3)]
        llm.step()
        llm.check_integrity()
        for handle in handles[5::13]:
            if handle.output.token_ids and not handle.done:
                handle.abort()
    return [handle.output for handle in handles]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("bushel:tiny", dtype="float32") as llm:
        yield llm


@pytest.fixture(scope="module")
def without() -> Iterator[LLM]:
    with LLM("bushel:tiny", dtype="float32", speculate="off") as llm:
        yield llm


def compare(edges: Edges, pairs: list[Pair], outputs: list[Output], plain: list[Output]) -> None:
    for pair, output, right in zip(pairs, outputs, plain, strict=True):
        assert (output.error, right.error) == (None, None)
        edges.compare(request_of(edges.llm, *pair), output, right)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_replies_are_the_same_with_drafts_and_without(count: int, llm: LLM, without: LLM) -> None:
    """Tokens, texts, endings and log-probabilities, greedy and sampled; and drafts hold. B59."""
    pairs, edges = asked(count), Edges(llm, EDGES[count])
    accepted, aborted = [0, 0], 0
    for start in range(0, count, AT_ONCE):
        some = pairs[start : start + AT_ONCE]
        outputs, others = served(llm, some), together(without, some)
        compare(edges, some, outputs, others)
        for at, (output, plain) in enumerate(zip(outputs, others, strict=True)):
            assert plain.usage.drafted_tokens == 0
            accepted[at % 2] += output.usage.accepted_tokens
            aborted += output.finish_reason == "abort"
    assert min(accepted) > count
    assert aborted > count // 60
    status = llm.status()
    assert status["max_decode_batch"] > 2
    assert status["lane"] == "batch"
    assert set(status["speculation"]["drafters"]) == {"grammar", "lookup", "mtp"}


@pytest.mark.long
@pytest.mark.parametrize("who", ["lookup", "mtp", "draft"])
def test_whoever_drafts_replies_are_the_same(who: str, without: LLM) -> None:
    """Each by itself, over the same requests. The draft model is the model itself, and where
    nothing else guesses, what will be said is foretold. B70.
    """
    plain = together(without, pairs := asked(AT_ONCE))
    if who == "lookup":
        pairs = [
            ({**request, "prediction": output.text}, params)
            for (request, params), output in zip(pairs, plain, strict=True)
        ]
    speculate = "bushel:tiny" if who == "draft" else who
    with LLM("bushel:tiny", dtype="float32", speculate=speculate) as llm:
        outputs = served(llm, pairs)
        drafters = ["lookup"] if who == "lookup" else ["prediction", who]
        assert llm.status()["speculation"]["drafters"] == ["grammar", *drafters]
        assert llm.status()["speculation"]["accepted"] > 0
    compare(Edges(without, 0), pairs, outputs, plain)


# -- controls -----------------------------------------------------------------------------


def whatever_is_guessed(patch: pytest.MonkeyPatch) -> None:
    """Every draft is kept."""
    patch.setattr(decode_batch, "accepted", lambda draft, chosen: len(draft))


def drafts_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Penalties do not see drafts that were kept."""
    keep = Sampler.keep
    patch.setattr(Sampler, "keep", lambda sampler, kept: keep(sampler, [1] * len(kept)))


MISTAKES = (whatever_is_guessed, number_of_another_place, drafts_forgotten)


@pytest.mark.long
@pytest.mark.parametrize("mistake", often(MISTAKES, drafts_forgotten))
def test_control_a_mistake_along_a_draft_is_no_edge(
    mistake: Callable[[pytest.MonkeyPatch], None],
    llm: LLM,
    without: LLM,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = SamplingParams(temperature=0.9, max_tokens=24, logprobs=1, frequency_penalty=1.0)
    pairs = [(repetitive(at), replace(params, seed=at)) for at in range(6)]
    plain = together(without, pairs)
    compare(Edges(llm, 0), pairs, together(llm, pairs), plain)
    mistake(monkeypatch)
    wrong = together(llm, pairs)
    with pytest.raises(AssertionError, match="one run drew"):
        compare(Edges(llm, len(pairs)), pairs, wrong, plain)
