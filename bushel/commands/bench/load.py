"""Sends one cell's requests: so many clients, each of which asks again when it has its answer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bushel.commands.bench.figures import Cell, CellRun, RequestTimes
from bushel.commands.bench.http_stream import HttpTarget, RequestFailed, streamed

_CHAT = "/v1/chat/completions"
_TEXT = ("content", "reasoning_content", "reasoning", "tool_calls")


@dataclass
class _Answer:
    """Read when all is over, so that reading it takes no time from the others."""

    start: float
    end: float = 0.0
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    error: str = ""


def chat_body(model: str | None, prompt: str, tokens: int) -> dict[str, Any]:
    """ignore_eos: replies are as long as they should be, on servers that know it."""
    return {
        **({"model": model} if model else {}),
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class CellLoad:
    """on_answer: hears how many have been answered. Interrupted, it keeps what there is."""

    def __init__(
        self,
        to: HttpTarget,
        model: str | None,
        timeout: float,
        on_answer: Callable[[int], None] = lambda _: None,
    ):
        self._to, self._model, self._timeout = to, model, timeout
        self._on_answer = on_answer
        self._answers: list[_Answer] = []
        self._began = 0.0

    def send(self, cell: Cell, number: int, prompts: Sequence[str]) -> CellRun:
        """One request of each prompt. number: of the round."""
        self._answers = []
        self._began = time.perf_counter()
        interrupted = False
        try:
            asyncio.run(self._all(cell, prompts))
        except KeyboardInterrupt:
            interrupted = True
        requests = [_times_of(answer) for answer in self._answers]
        seconds = time.perf_counter() - self._began
        if not interrupted:
            seconds = max((one.end for one in requests), default=0.0)
        return CellRun(cell, number, seconds, requests, interrupted)

    async def _all(self, cell: Cell, prompts: Sequence[str]) -> None:
        waiting = iter(prompts)

        async def client() -> None:
            for prompt in waiting:
                await self._one(chat_body(self._model, prompt, cell.output_tokens))

        await asyncio.gather(*(client() for _ in range(cell.concurrency)))

    async def _one(self, body: dict[str, Any]) -> None:
        answer = _Answer(self._now())
        try:
            async with asyncio.timeout(self._timeout):
                async for data in streamed(self._to, _CHAT, body):
                    answer.pieces.append((self._now(), data))
        except RequestFailed as error:
            answer.error = str(error)
        except TimeoutError:
            answer.error = f"no answer in {self._timeout:g} s"
        except OSError as error:
            answer.error = error.strerror or str(error) or type(error).__name__
        answer.end = self._now()
        self._answers.append(answer)
        self._on_answer(len(self._answers))

    def _now(self) -> float:
        return time.perf_counter() - self._began


def _times_of(answer: _Answer) -> RequestTimes:
    times: list[float] = []
    usage: dict[str, Any] = {}
    error = answer.error
    try:
        for when, data in answer.pieces:
            event = json.loads(data)
            usage = event.get("usage") or usage
            if "error" in event:
                error = error or str(event["error"].get("message", event["error"]))
            choices = event.get("choices") or ()
            if any(choice.get("delta", {}).get(key) for choice in choices for key in _TEXT):
                times.append(when)
    except (ValueError, AttributeError):
        error = error or "it does not answer as a server of this API does"
    if not error and not usage:
        error = "the answer says nothing of its tokens (stream_options.include_usage)"
    details = usage.get("prompt_tokens_details") or {}
    return RequestTimes(
        start=answer.start,
        end=answer.end,
        times=times,
        prompt_tokens=int(usage.get("prompt_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
        output_tokens=int(usage.get("completion_tokens") or 0),
        error=error,
    )
