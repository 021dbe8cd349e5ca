"""A model that keeps what it computes, asked by hand, beside one that keeps nothing.

BUSHEL_TEST_FAMILIES=all runs these tests over every family whose state can be restored, and not
only over those that stand for others.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self
from unittest.mock import patch

import numpy as np

from bushel import LLM, SamplingParams
from bushel.core import Prepared, Request
from bushel.core.params import resolve
from bushel.engine.build import rows_of
from bushel.llm import Handle
from tests.families import checkpoint_dir
from tests.families.checkpoint import FIRST_SPECIAL, VOCAB
from tests.families.family import EVERY, Family
from tests.parity.run import BOUND, WIDER, Watch, loaded
from tests.parity.scenarios import OPAQUE

TOKENS = 5
_PARAMS = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True, logprobs=VOCAB)
_ids = itertools.count()


def families(every: Iterable[Family], some: Iterable[str]) -> list[str]:
    """Names to run over. A family that depends on how its prompts are cut has no reuse."""
    cut = [it for it in every if not it.equal_chunks and not OPAQUE & set(it.kinds)]
    names = [it.name for it in cut if getattr(it, "cuts", "") != "always refused"]
    return names if EVERY else sorted(some)


def words(count: int, seed: int = 0) -> tuple[int, ...]:
    rng = np.random.default_rng([seed, 5])
    return tuple(rng.integers(FIRST_SPECIAL, VOCAB, count).tolist())


@dataclass(frozen=True)
class Answer:
    tokens: tuple[int, ...]
    logprobs: np.ndarray  # [TOKENS, VOCAB]
    cached: int
    hit: str
    why: str

    def close_to(self, other: "Answer", name: str) -> bool:
        difference = float(np.abs(self.logprobs - other.logprobs).max())
        return self.tokens == other.tokens and difference <= WIDER.get(name, BOUND)


def _submit(llm: LLM, prompt: Prepared, salt: str, params: SamplingParams) -> Handle:
    engine = llm._engine
    assert engine is not None
    model = engine.model
    decoding = resolve(params, model.defaults, vocab=model.vocab, end_ids=model.tokenizer.end_ids)
    request = Request(f"by-hand-{next(_ids)}", prompt, rows_of(decoding, 1), salt)
    handle = llm._handle(engine, request, params)
    engine.submit(request)
    return handle


def _answer(handle: Handle, hit: str = "", why: str = "") -> Answer:
    output = handle.output
    assert output.error is None, output.error
    found = np.empty((len(output.token_ids), VOCAB), np.float32)
    for at, entry in enumerate(output.logprobs or []):
        ids, values = zip(*entry.top, strict=True)
        found[at, list(ids)] = values
    return Answer(tuple(output.token_ids), found, output.usage.cached_tokens, hit, why)


@lru_cache(maxsize=4)
def _cold(name: str) -> LLM:
    return LLM(str(checkpoint_dir(name)), prefix_cache=False)


@lru_cache(maxsize=4)
def _known(name: str) -> dict[Any, Answer]:
    return {}


def cold(name: str, prompt: Prepared) -> Answer:
    """The reply of a model that keeps nothing."""
    key = prompt.ids, tuple(it.digest for it in prompt.media)
    known = _known(name)
    if key not in known:
        handle = _submit(_cold(name), prompt, "", _PARAMS)
        while not handle.done:
            _cold(name).step()
        known[key] = _answer(handle)
    return known[key]


class Serving:
    """`ask` checks every reply against the cold one, and the count of tokens against a spy."""

    def __init__(self, name: str, *, busy: bool = False, **options: Any):
        self.name = name
        with patch("bushel.engine.build.load", loaded):
            self.llm = LLM(str(checkpoint_dir(name)), **{"prefill_chunk": 64, **options})
        self.watch = Watch(self.llm, garbage=False)
        self._busy = busy  # hits happen inside a running batch
        self._company: Handle | None = None

    def __enter__(self) -> Self:
        self.watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.__exit__()
        self.llm.close()

    def ask(self, prompt: Prepared | tuple[int, ...], salt: str = "") -> Answer:
        prompt = prompt if isinstance(prompt, Prepared) else Prepared(prompt)
        if self._busy:
            self._keep_company()
        before = self.watch.tokens
        handle = _submit(self.llm, prompt, salt, _PARAMS)
        told: dict[str, Any] = {}
        while not handle.done:
            self.llm.step()
            for it in self.llm.status()["requests"]:
                told = it if it["id"] == handle.id else told
        answer = _answer(handle, told.get("hit", ""), told.get("why", ""))
        computed = self.watch.tokens - before - (TOKENS - 1)
        if not self._busy:  # whose tokens cannot be told from these
            assert computed == len(prompt.ids) - answer.cached
        assert answer.close_to(cold(self.name, prompt), self.name)
        self.llm.check_integrity()
        return answer

    def _keep_company(self) -> None:
        """Another row that decodes all the while."""
        if self._company is None or self._company.done:
            params = SamplingParams(max_tokens=4000, temperature=0, ignore_eos=True)
            self._company = self.llm.submit({"prompt_token_ids": list(words(9, 77))}, params)
            for _ in range(4):
                self.llm.step()
