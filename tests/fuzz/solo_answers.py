"""What an ask says to `LLM`, and its answer alone on a fresh engine without a prefix cache."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from unittest.mock import patch

from bushel import LLM, SamplingParams
from bushel.core.footprint import Footprint
from bushel.models import Model
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.families.images import LARGE, MEDIUM, SMALL, picture
from tests.families.text import TEXT
from tests.families.vision import VISION
from tests.fuzz.answers import Answer, answer_of
from tests.fuzz.random_requests import LONGEST_PROMPT, Ask
from tests.parity.run import loaded, measured

SIZES = (SMALL, MEDIUM, LARGE)
_MOST_TURNS = 3  # of a conversation, so that it fits any memory limit drawn


def model_of(family: str) -> Model:
    return loaded(str(checkpoint_dir(family)), dtype=None, kv_bits=None, trust_remote_code=False)


def footprint_of(family: str) -> Footprint:
    return measured(model_of(family))


def cuts_matter(family: str) -> bool:
    return bool((TEXT[family] if family in TEXT else VISION[family]).equal_chunks)


def opened(family: str, **options: Any) -> LLM:
    """An engine of its own over weights that others use, too."""
    with (
        patch("bushel.engine.build.load", loaded),
        patch("bushel.engine.footprint.footprint", measured),
    ):
        return LLM(str(checkpoint_dir(family)), **options)


@lru_cache(maxsize=8)
def state_bytes(family: str) -> tuple[int, int]:
    """What is kept of a token, and of a place where a snapshot is taken."""
    with opened(family) as llm:
        llm.generate({"prompt_token_ids": list(range(20, 84))}, SamplingParams(max_tokens=1))
        stats = llm.cache_stats()
    if not stats["on"] or not stats["tokens"]:
        return 0, 0
    taken = stats["snapshots"] or 1
    return -(-stats["edge_bytes"] // stats["tokens"]), -(-stats["snapshot_bytes"] // taken)


class Alone:
    """Answers the asks of one workload, each once. An ask that goes on from another waits for it.

    chunk: of families whose answers depend on it; the others' prompts run in one piece.
    """

    def __init__(self, family: str, asks: tuple[Ask, ...], chunk: int):
        self._family, self._asks = family, asks
        self._chunk = chunk if cuts_matter(family) else 512
        self._answers: dict[int, Answer] = {}

    def answer(self, at: int) -> Answer:
        if at not in self._answers:
            request, params = self.request(at), self.params(at)
            options = {"prefill_chunk": self._chunk, "prefix_cache": False, "max_batch": 1}
            with opened(self._family, **options) as llm:
                self._answers[at] = answer_of(llm.generate(request, params)[0])
        return self._answers[at]

    def params(self, at: int) -> SamplingParams:
        said = dict(self._asks[at].params)
        bias = said.pop("logit_bias", None)
        if bias is not None:
            said["logit_bias"] = {int(token): value for token, value in bias.items()}
        return SamplingParams(**said, logprobs=VOCAB)

    def request(self, at: int) -> dict[str, Any]:
        ask = self._asks[at]
        salt = {"cache_salt": ask.salt} if ask.salt else {}
        if not ask.talks:
            return {"prompt_token_ids": list(self._ids(at)), **salt}
        shape = {"shape": ask.shape} if ask.shape is not None else {}
        return {"messages": self._messages(at), **shape, **salt}

    def _ids(self, at: int) -> tuple[int, ...]:
        ask = self._asks[at]
        if ask.after is None:
            return ask.ids
        reply = tuple(self._first_reply(ask.after).tokens[: ask.reply])
        before = (*self._ids(ask.after), *reply)[: LONGEST_PROMPT - len(ask.ids)]
        return before + ask.ids

    def _messages(self, at: int) -> list[dict[str, Any]]:
        ask = self._asks[at]
        system = [{"role": "system", "content": ask.system}] if ask.system else []
        before: list[dict[str, Any]] = system
        if ask.after is not None:
            before = self._messages(ask.after)
            if sum(it["role"] == "user" for it in before) >= _MOST_TURNS:
                before = system
            else:
                said = self._first_reply(ask.after).text or "So."
                before = [*before, {"role": "assistant", "content": said}]
        turns = [{"role": "user", "content": _content(turn)} for turn in ask.turns]
        return [*before, *turns]

    def _first_reply(self, at: int) -> Any:
        return self.answer(at).choices[0]


def _content(turn: Any) -> Any:
    if not turn.pictures:
        return turn.text
    seen = [picture(SIZES[size], seed) for size, seed in turn.pictures]
    parts = [{"type": "image_url", "image_url": {"url": it}} for it in seen]
    return [*parts, {"type": "text", "text": turn.text}]
