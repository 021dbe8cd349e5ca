"""Random traffic over shared prefixes: every reply is the cold one (B32, B36, B37, B38, B42, B44).

A trace is a series of rounds; a round submits a few prompts, perhaps aborts some, and runs until
all have ended. Prompts are drawn from a pool that grew like a tree, so that they share beginnings
of all lengths, some with another prompt's reply in them.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from bushel import LLM, SamplingParams
from bushel.cache.prefix.memory_budget import MemoryBudget
from bushel.cache.prefix.radix_tree import RadixTree, TreeWalk
from bushel.cache.prefix.token_key import agree, key_of
from bushel.cache.recurrent import Recurrent
from bushel.core import BushelError, Request
from bushel.llm import Handle
from tests.families import checkpoint_dir
from tests.families.images import MEDIUM, SMALL, picture
from tests.parity.run import Watch

pytestmark = pytest.mark.long

REQUESTS = int(os.environ.get("BUSHEL_TEST_TRACES", "300"))  # over all families
# Attention alone, windows, recurrent layers with and without attention, images with each.
FAMILIES = ("llama", "gemma3_text", "qwen3_5", "mamba2", "qwen2_5_vl", "qwen3_5_vl")
LONGEST = 6  # tokens of a reply
POOL = 36
ENOUGH = 1 << 30


@dataclass(frozen=True)
class Ask:
    request: dict[str, Any]
    reply: tuple[int, ...]  # cold, at its longest


def params(count: int) -> SamplingParams:
    return SamplingParams(max_tokens=count, temperature=0, ignore_eos=True)


@cache
def pool(family: str) -> tuple[Ask, ...]:
    """Prompts, and their replies when nothing is reused."""
    rng = random.Random(family)
    with LLM(str(checkpoint_dir(family)), prefix_cache=False) as llm:
        said: list[list[int]] = [[]]
        asks: list[Ask] = []
        for part in range(4):
            prompts = [_grown(said, rng) for _ in range(POOL // 4)]
            requests: list[dict[str, Any]] = [{"prompt_token_ids": prompt} for prompt in prompts]
            if family.endswith("_vl"):
                requests[::2] = [_shown(rng) for _ in requests[::2]]
            outs = llm.generate(requests, params(LONGEST))
            replies = [tuple(out.choices[0].token_ids) for out in outs]
            asks += [Ask(*pair) for pair in zip(requests, replies, strict=True)]
            said += (
                prompts if part % 2 else [[*p, *r] for p, r in zip(prompts, replies, strict=True)]
            )
    return tuple(asks)


def _grown(said: list[list[int]], rng: random.Random) -> list[int]:
    """Something that was said, or its beginning, and a few tokens more; at most 120."""
    before = rng.choice(said)[: rng.choice([10, 40, 90])]
    before = before[: rng.randrange(len(before) + 1)] if rng.random() < 0.3 else before
    return [*before, *rng.choices(range(16, 512), k=rng.choice([1, 2, 5, 20, 30]))]


def _shown(rng: random.Random) -> dict[str, Any]:
    """One or two of three pictures of the same size, in a few conversations."""
    seen = [picture(SMALL, rng.randrange(3)) for _ in range(rng.choice([1, 1, 2]))]
    seen += [picture(MEDIUM, rng.randrange(2))] * (rng.random() < 0.2)
    parts = [{"type": "image_url", "image_url": {"url": it}} for it in seen]
    text = rng.choice(["What is it?", "What is it then, and why?", "Look"])
    content = [*parts, {"type": "text", "text": text}]
    before = [{"role": "system", "content": "You see pictures."}] * rng.randrange(2)
    return {"messages": [*before, {"role": "user", "content": content}]}


@dataclass
class Sent:
    ask: Ask
    count: int  # tokens wanted
    handle: Handle
    key: np.ndarray
    aborted: bool = False

    @property
    def tokens(self) -> list[int]:
        return self.handle.output.choices[0].token_ids

    @property
    def cached(self) -> int:
        return self.handle.output.usage.cached_tokens

    @property
    def most(self) -> np.ndarray:
        """All that it can have run."""
        return np.concatenate([self.key, np.array(self.ask.reply, np.int64)])

    @property
    def least(self) -> np.ndarray:
        """All that it has run for certain, if it was not aborted."""
        return np.concatenate([self.key, np.array(self.ask.reply[: self.count - 1], np.int64)])


@dataclass
class Trace:
    """One engine, and what its tree may hold: all that was run since it was last empty."""

    llm: LLM
    family: str
    roomy: bool
    ran: list[Sent] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    asked: int = 0

    @classmethod
    @contextmanager
    def of(cls, family: str, limit: int, **options: Any) -> Iterator[Trace]:
        path = str(checkpoint_dir(family))
        with LLM(path, max_batch=4, prefill_chunk=24, cache_memory=limit, **options) as llm:
            yield cls(llm, family, limit == ENOUGH)

    def submit(self, ask: Ask, count: int) -> Sent:
        engine, seen = self.llm._engine, list[Request]()
        assert engine is not None
        submit = engine.submit

        def spy(request: Request) -> None:
            seen.append(request)
            submit(request)

        with patch.object(engine, "submit", spy):
            handle = self.llm.submit(ask.request, params(count))
        self.asked += 1
        return Sent(ask, count, handle, key_of(seen[0].prompt))

    def check(self) -> None:
        try:
            self.llm.check_integrity()
        except BushelError as error:
            self.wrong.append(str(error))
        stats = self.llm.cache_stats()
        if stats["bytes"] > stats["limit_bytes"]:
            self.wrong.append(f"{stats['bytes']} bytes of {stats['limit_bytes']}")

    def round(self, rng: random.Random, asks: tuple[Ask, ...]) -> None:
        count = rng.choice([1, 1, 1, 2, 3, 5])
        again = [self.ran[-1].ask] if self.ran and rng.random() < 0.2 else asks
        with Watch(self.llm, garbage=False) as watch:
            sent: list[Sent] = []
            aborts = rng.random() < 0.2
            while len(sent) < count or not all(it.handle.done for it in sent):
                if len(sent) < count and rng.random() < 0.6:
                    sent.append(self.submit(rng.choice(again), rng.randrange(1, LONGEST + 1)))
                elif aborts and sent and rng.random() < 0.15:
                    gone = rng.choice(sent)
                    gone.aborted |= not gone.handle.done
                    gone.handle.abort()
                else:
                    self.llm.step()
                self.check()
        self._judge(sent, watch.tokens)
        self.ran += sent
        if rng.random() < 0.02:
            self.llm.clear_cache()
            self.check()
            self.ran.clear()

    def _judge(self, sent: list[Sent], computed: int) -> None:
        wanted = 0
        for it in sent:
            choice, length = it.handle.output.choices[0], len(it.key)
            reply = list(it.ask.reply[: len(it.tokens) if it.aborted else it.count])
            if choice.error or it.tokens != reply:
                self._blame(it, f"says {it.tokens}, not {reply} {choice.error or ''}")
            others = [other.most for other in (*self.ran, *sent) if other is not it]
            most = min(length - 1, max((agree(it.key, other) for other in others), default=0))
            if it.cached > most:
                self._blame(it, f"reuses {it.cached} where {most} are known")
            wanted += length - 1 - it.cached + it.count
        if any(it.aborted for it in sent):
            if computed > wanted:
                self.wrong.append(f"{computed} tokens computed, at most {wanted} expected")
            return
        if computed != wanted:
            self.wrong.append(f"{computed} tokens computed, {wanted} expected")
        if len(sent) == 1 and self.roomy:
            self._judge_alone(sent[0])

    def _judge_alone(self, it: Sent) -> None:
        """Nothing else ran and there is room: what must be reused is known."""
        known = [other for other in self.ran if not other.aborted]
        if self.family == "llama":  # any number of tokens can be cut out of its state
            least = max((agree(it.key, other.least) for other in known), default=0)
        else:
            same = self.ran and not self.ran[-1].aborted and self.ran[-1].ask is it.ask
            least = len(it.key) if same else 0
        if it.cached < min(least, len(it.key) - 1):
            self._blame(it, f"reuses {it.cached} of {least} tokens")

    def _blame(self, it: Sent, what: str) -> None:
        self.wrong.append(f"a prompt of {len(it.key)} tokens with {it.cached} reused {what}")

    def play(self, seed: int, requests: int) -> list[str]:
        rng = random.Random(seed)
        while self.asked < requests and not self.wrong:
            self.round(rng, pool(self.family))
        return self.wrong


@cache
def tight(family: str) -> int:
    """Bytes for about a quarter of what the pool leaves behind."""
    with Trace.of(family, ENOUGH) as trace:
        trace.llm.generate([ask.request for ask in pool(family)], params(2))
        return trace.llm.cache_stats()["bytes"] // 4


@pytest.mark.parametrize("room", ["roomy", "tight"])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_trace_changes_a_reply(family: str, room: str) -> None:
    each = REQUESTS // len(FAMILIES) // 2
    limit = ENOUGH if room == "roomy" else tight(family)
    for seed, requests in enumerate([each // 3, each - each // 3]):
        with Trace.of(family, limit) as trace:
            assert trace.play(seed, requests) == []
            stats = trace.llm.cache_stats()
            assert stats["reused_tokens"] > 0
            assert (stats["evicted"] > 0) == (room == "tight")


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_5"])
def test_no_trace_changes_a_reply_when_engines_come_and_go(family: str, tmp_path: Path) -> None:
    """They share a folder. Memory is so short that much has to be read again."""
    limit, ran = tight(family) // 2, list[Sent]()
    for seed in range(3):
        with Trace.of(family, limit, cache_dir=str(tmp_path), cache_disk=20 * limit) as trace:
            trace.ran = ran
            assert trace.play(seed, REQUESTS // 40) == []
            if seed:
                assert trace.llm.cache_stats()["hits"].get("disk", 0) > 0


# -- controls --------------------------------------------------------------------------------


def noticed(family: str, limit: int = ENOUGH) -> bool:
    with Trace.of(family, limit) as trace:
        return bool(trace.play(seed=0, requests=200))


def test_a_walk_of_one_token_too_many_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    walk = RadixTree.walk

    def wrong(tree: RadixTree, root: str, key: Any) -> TreeWalk:
        found = walk(tree, root, key)
        inside = found.nodes and found.matched < min(found.nodes[-1].end, len(key))
        return TreeWalk(found.nodes, found.matched + bool(inside))

    monkeypatch.setattr(RadixTree, "walk", wrong)
    assert noticed("llama")


def test_a_layer_that_is_not_restored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    restore, calls = Recurrent.restore, itertools.count()

    def wrong(kind: Recurrent, snapshot: Any, fresh: Any) -> Any:
        return fresh if next(calls) % 3 == 0 else restore(kind, snapshot, fresh)

    monkeypatch.setattr(Recurrent, "restore", wrong)
    assert noticed("qwen3_5")


def test_a_budget_that_is_not_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tight("llama")
    monkeypatch.setattr(MemoryBudget, "make_room", lambda *_: True)
    assert noticed("llama", limit)
