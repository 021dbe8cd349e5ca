"""Rows of every sort in one batch say with drafts what they say without, in each kind of layer.

`test_same_replies` has more requests, of `bushel:tiny` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest

from bushel import LLM, Event, Handle, Output, SamplingParams
from bushel.core import Request
from tests.depth import often
from tests.engine.constrained_requests import PERSON, Pair, together, valid
from tests.engine.drafts.test_same_replies import MISTAKES
from tests.engine.edge_of_a_draw import Edges, request_of
from tests.engine.mixed_requests import look
from tests.engine.test_preemption import making_way
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.families.images import MEDIUM, SMALL
from tests.llm.request_builders import greedy, hot, prompt, stop_string
from tests.parity.draft_mistakes import one_less, one_more

# Plain keys and values, windows beside them, with sinks, experts, recurrent layers beside attention
# and in one layer with it, convolutions; and one that sees.
FAMILIES = ("llama", "gemma3_text", "gpt_oss", "qwen3_moe", "falcon_h1", "lfm2", "qwen3_5_vl")
SEES = "qwen3_5_vl"
SLOTS = 6  # for some twenty rows, so that most of them join those that speak
MIDWAY = 6  # tokens after which a row is given up


def held(length: int, seed: int) -> dict[str, Any]:
    return {**prompt(length, seed), "shape": {"json_schema": PERSON}}


def warm(max_tokens: int, **more: Any) -> SamplingParams:
    return hot(max_tokens, temperature=0.9, **more)


ASKED: dict[str, Pair] = {
    "greedy": (prompt(9, 1), greedy(28, logprobs=5)),
    "sampled": (prompt(17, 2), warm(28, seed=1, top_p=0.95)),
    "to a schema": (held(12, 3), greedy(150, ignore_eos=False)),
    "penalties": (prompt(40, 4), greedy(26, repetition_penalty=1.3, presence_penalty=0.5)),
    "DRY": (prompt(33, 5), greedy(28, dry_multiplier=0.8)),
    "plain": (prompt(21, 6), greedy(24, speculate=False)),
    "short": (prompt(1, 7), greedy(7)),
    "given up": (prompt(25, 8), greedy(28)),
    "choices": (prompt(5, 9), warm(20, n=2, seed=2, frequency_penalty=0.4)),
    "bias": (prompt(70, 10), warm(24, seed=3, logit_bias={300: 4.0, 301: -4.0}, min_p=0.01)),
    "sampled to a schema": (held(30, 11), warm(150, seed=4, ignore_eos=False)),
    "plain sampled": (prompt(3, 12), warm(20, seed=5, speculate=False)),
    "given up, sampled": (prompt(18, 13), warm(28, seed=6, top_k=40)),
    "tokens": (prompt(14, 14), greedy(24, bad_words=["e", "the"], min_tokens=9)),
}
SEEING: dict[str, Pair] = {
    "picture": (look("What is this?", MEDIUM), greedy(24, logprobs=3)),
    "pictures": (look("And these?", SMALL, MEDIUM, seed=5), warm(22, seed=7)),
    "picture to a schema": (
        {**look("Who is it?", SMALL, seed=3), "shape": {"json_schema": PERSON}},
        greedy(150, ignore_eos=False),
    ),
}
PLACES = (7, 9, 10, 12)
# Once more, with a text to stop at that a token from this one on writes.
STOPS = {f"{title}, to {first}": first for title in ("greedy", "sampled") for first in PLACES}
GIVEN_UP = ("given up", "given up, sampled")
PLAIN = ("plain", "plain sampled")
# Of each sort some drafts hold.
ALIKE = (
    ("greedy", "short", "tokens"),
    ("sampled", "choices", "bias"),
    ("penalties", "DRY"),
    ("to a schema",),
    ("sampled to a schema",),
    (*STOPS,),
)


@dataclass
class Known:
    """What is asked of a family, and what it says to that without drafts."""

    path: str
    asked: dict[str, Pair]
    plain: dict[str, Output]


@dataclass
class Reply:
    output: Output
    last: Event

    @property
    def ended_inside(self) -> bool:
        """Whether its last token was a draft, and not what followed one."""
        return 0 < self.last.accepted == len(self.last.token_ids)


@cache
def known(name: str) -> Known:
    asked = ASKED | (SEEING if name == SEES else {})
    path = str(checkpoint_dir(name))
    with LLM(path, speculate="off") as llm:
        plain = dict(zip(asked, together(llm, [*asked.values()]), strict=True))
        decode = llm._own_engine().model.tokenizer.decode
        for title, first in STOPS.items():
            before, _ = title.split(",")
            found = stop_string(plain[before].token_ids, decode, range(first, 26))
            assert found is not None
            request, params = asked[before]
            asked[title] = request, replace(params, stop=found[0])
        plain |= zip(STOPS, together(llm, [asked[title] for title in STOPS]), strict=True)
    return Known(path, asked, plain)


def foretold(title: str, output: Output) -> tuple[int, ...]:
    """What it says, with a mistake now and then; not where it has to come to its stop string."""
    said = [token for choice in output.choices for token in choice.token_ids]
    wrong = range(8, 0 if title in STOPS else len(said), 9)
    return tuple((token + (at in wrong)) % VOCAB for at, token in enumerate(said))


def submit(llm: LLM, pair: Pair, prediction: tuple[int, ...]) -> Handle:
    """In tokens: what a random model says is no text that is read as these tokens again."""
    prepare = llm._prepare

    def predicted(*args: Any) -> Request:
        request = prepare(*args)
        return replace(request, prompt=replace(request.prompt, prediction=prediction))

    with patch.object(llm, "_prepare", predicted):
        return llm.submit(*pair)


def served(llm: LLM, them: Known, *, foretell: bool) -> dict[str, Reply]:
    """Two before every step; some are given up while they speak. foretell: not only what comes to
    a stop string.
    """
    handles: dict[str, Handle] = {}
    last: dict[str, Event] = {}
    waiting = iter(them.asked.items())
    while len(handles) < len(them.asked) or not all(it.done for it in handles.values()):
        for title, pair in islice(waiting, 2):
            told = foretell or title in STOPS
            prediction = foretold(title, them.plain[title]) if told else ()
            handles[title] = submit(llm, pair, prediction)
        llm.step()
        llm.check_integrity()
        for title, handle in handles.items():
            for event in handle.take_events():
                last[title] = event
            if title in GIVEN_UP and len(handle.output.token_ids) >= MIDWAY:
                handle.abort()
    for title, handle in handles.items():
        assert handle.output.error is None, title
    return {title: Reply(handle.output, last[title]) for title, handle in handles.items()}


def compare(llm: LLM, them: Known, replies: dict[str, Reply]) -> None:
    edges = Edges(llm, 0)
    for title, reply in replies.items():
        edges.compare(request_of(llm, *them.asked[title]), reply.output, them.plain[title])


def drafts(replies: dict[str, Reply], *titles: str) -> tuple[int, int]:
    """How many held, of how many."""
    usages = [replies[title].output.usage for title in titles]
    accepted = sum(usage.accepted_tokens for usage in usages)
    return accepted, sum(usage.drafted_tokens for usage in usages)


CASES = [(name, who) for name in FAMILIES for who in ("lookup", "draft")]


@pytest.mark.parametrize(
    ("name", "who"), often(CASES, ("llama", "draft"), ("qwen3_5_vl", "lookup"))
)
def test_rows_of_every_sort_say_with_drafts_what_they_say_without(name: str, who: str) -> None:
    """By lookup in what is foretold, and by a second model, which is the same one. Rows join those
    that speak, leave, make way and come back. B59, B70.
    """
    them = known(name)
    with LLM(them.path, max_batch=SLOTS, speculate=them.path if who == "draft" else who) as llm:
        with pytest.MonkeyPatch.context() as patched:
            yielded = making_way(patched, drop=who == "draft")
            replies = served(llm, them, foretell=who == "lookup")
        status = llm.status()
        compare(llm, them, replies)
    assert len(yielded) > 6
    assert status["preemptions"] > 6
    assert status["max_decode_batch"] > SLOTS // 2
    assert {replies[title].output.finish_reason for title in GIVEN_UP} == {"abort"}
    # What a second model cannot see it does not guess.
    silent = {*PLAIN, *(("picture", "pictures") if who == "draft" else ())} & them.asked.keys()
    for title, reply in replies.items():
        assert (reply.output.usage.drafted_tokens == 0) == (title in silent), title
        if "schema" in title:
            valid(reply.output)
    for titles in ALIKE:
        accepted, drafted = drafts(replies, *(title for title in titles if title in them.asked))
        assert 0 < accepted <= drafted, titles
    accepted, drafted = drafts(replies, *replies)
    assert 0 < accepted < drafted
    assert any(replies[title].ended_inside for title in STOPS)


@pytest.mark.parametrize(
    ("mistake", "name"),
    often(
        [(mistake, name) for mistake in (one_more, one_less, *MISTAKES) for name in FAMILIES],
        (one_more, "llama"),
    ),
    ids=lambda of: getattr(of, "__name__", of),
)
def test_control_a_mistake_with_drafts_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the comparison. Of free rows: a grammar would refuse what was not drawn."""
    them = known(name)
    free = {title: pair for title, pair in them.asked.items() if "schema" not in title}
    them = replace(them, asked=free)
    with LLM(them.path, max_batch=SLOTS, speculate="lookup") as llm:
        mistake(monkeypatch)
        monkeypatch.setattr(llm, "check_integrity", lambda: None)  # it notices rows that go wrong
        replies = served(llm, them, foretell=True)
        with pytest.raises(AssertionError, match="one run drew"):
            compare(llm, them, replies)
