"""A workload on a real `bushel serve`: clients that come, stream, and hang up when they like.

What meets what depends on the machine here; the requests and their right answers do not.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from tests.families import checkpoint_dir
from tests.fuzz.answers import Answer, Choice, compare
from tests.fuzz.counts import Outcome
from tests.fuzz.on_llm import sizes
from tests.fuzz.solo_answers import Alone, model_of
from tests.fuzz.workload import Act, Workload
from tests.server.compare_with_llm import Reference, named
from tests.server.server_process import FEW, PATIENCE, Server, serving

_TOP = 5  # likeliest tokens that are compared
_SLOW = 60  # milliseconds that the disk takes for a file, at most
_SHAPES = {
    "choice": "guided_choice",
    "regex": "guided_regex",
    "grammar": "guided_grammar",
    "json_schema": "guided_json",
}


@dataclass
class Sent:
    ask: int
    task: asyncio.Task[Answer]


class OnHTTP:
    def __init__(self, workload: Workload):
        self._workload = workload
        self._alone = Alone(workload.family, workload.asks, workload.settings.prefill_chunk)
        self._folder = tempfile.mkdtemp(prefix="bushel-fuzz-")
        self._names = _Names(workload.family)
        self._sent: list[Sent] = []
        self._outcome = Outcome()
        self._outcome.counts.families.add(workload.family)

    def play(self) -> Outcome:
        self._outcome.counts.workloads = 1
        for at in range(len(self._workload.asks)):
            self._alone.answer(at)  # the loop below is for what clients do
        acts = [*self._workload.acts, Act("drain")]
        try:
            while acts:
                with slow_disk(), serving(*self._arguments(), model=self._path) as server:
                    acts = asyncio.run(self._until_restart(server, acts))
        finally:
            shutil.rmtree(self._folder)
        self._outcome.counts.mismatches = len(self._outcome.wrong)
        return self._outcome

    @property
    def _path(self) -> str:
        return str(checkpoint_dir(self._workload.family))

    def _arguments(self) -> list[str]:
        settings = self._workload.settings
        room = sizes(self._workload.family, settings)
        said = {
            "--prefill-chunk": settings.prefill_chunk,
            "--max-num-seqs": settings.max_batch,
            "--snapshot-every": settings.snapshot_every,
            "--token-gap": settings.token_gap,
        }
        if "cache_memory" in room:
            said["--cache-memory"] = _megabytes(room["cache_memory"])
        if settings.files:
            said["--cache-dir"] = self._folder
        if "cache_disk" in room:
            said["--cache-disk"] = _megabytes(room["cache_disk"])
        return [*FEW, *(str(it) for pair in said.items() for it in pair)]

    # -- acts --------------------------------------------------------------------------------

    async def _until_restart(self, server: Server, acts: list[Act]) -> list[Act]:
        """Do what comes before the next restart, and return what comes after it."""
        async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
            self._client = client
            for at, act in enumerate(acts):
                if act.what == "restart":
                    await self._drain()
                    self._count(server)
                    server.stop()
                    self._outcome.counts.restarts += 1
                    return acts[at + 1 :]
                await self._do(act)
            self._count(server)
        return []

    async def _do(self, act: Act) -> None:
        match act.what:
            case "submit":
                task = asyncio.create_task(self._ask(act.number))
                self._sent.append(Sent(act.number, task))
                await asyncio.sleep(0)
            case "step":
                await asyncio.sleep(0.005 * act.number)
            case "abort":
                for sent in (it for it in self._sent if it.ask == act.number):
                    self._outcome.counts.aborts += sent.task.cancel()
            case "drain":
                await self._drain()
            case "clear":
                (await self._client.delete("/v1/cache")).raise_for_status()

    async def _drain(self) -> None:
        await asyncio.gather(*(it.task for it in self._sent), return_exceptions=True)
        for sent in self._sent:
            if not sent.task.cancelled():
                self._judge(sent)
        self._sent.clear()

    def _count(self, server: Server) -> None:
        hits = server.http.get("/v1/cache").json().get("since_start", {}).get("hits", {})
        self._outcome.counts.disk_hits += hits.get("disk", 0)

    def _judge(self, sent: Sent) -> None:
        error = sent.task.exception()
        got = Answer([], str(error)) if error is not None else sent.task.result()
        ask = self._workload.asks[sent.ask]
        alone = self._names.as_told(self._alone.answer(sent.ask), ask.talks)
        verdict = compare(self._workload.family, got, alone, aborted=False, greedy=ask.greedy)
        self._outcome.judge(sent.ask, got, alone, verdict)

    # -- one request -------------------------------------------------------------------------

    async def _ask(self, at: int) -> Answer:
        path, body = self._body(at)
        if at % 2:
            return folded(await self._client.post(path, json=body))
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with self._client.stream("POST", path, json=body) as response:
            if response.status_code != 200:
                await response.aread()
                return folded(response)
            lines = [line async for line in response.aiter_lines()]
        return streamed(lines)

    def _body(self, at: int) -> tuple[str, dict[str, Any]]:
        ask, request = self._workload.asks[at], self._alone.request(at)
        body: dict[str, Any] = {it: v for it, v in ask.params.items() if it != "prompt_logprobs"}
        if ask.salt:
            body["cache_salt"] = ask.salt
        if not ask.talks:
            prompt = request["prompt_token_ids"]
            return "/v1/completions", {**body, "prompt": prompt, "logprobs": _TOP}
        for name, form in (ask.shape or {}).items():
            told = {"type": "json_object"} if name == "json_object" else form
            body[_SHAPES.get(name, "response_format")] = told
        body |= {"messages": _sendable(request["messages"]), "logprobs": True, "top_logprobs": _TOP}
        return "/v1/chat/completions", body


# -- replies -----------------------------------------------------------------------------------


class _Names:
    """Answers of `LLM` in the API's terms: tokens by their bytes, a few likeliest."""

    bytes = Reference.bytes

    def __init__(self, family: str):
        self.tokenizer = model_of(family).host.tokenizer

    def as_told(self, answer: Answer, talks: bool) -> Answer:
        """A conversation's text is read for thoughts and calls, so that its tokens are compared."""
        choices = [
            Choice(
                [self.bytes(token) for token in choice.tokens],
                "" if talks else choice.text,
                choice.finish,
                [np.sort(row)[::-1][:_TOP] for row in choice.likeliest],
            )
            for choice in answer.choices
        ]
        return Answer(choices, answer.error)


def folded(response: httpx.Response) -> Answer:
    body = response.json()
    if response.status_code != 200:
        return Answer([], str(body["error"]["message"]))
    choices: dict[int, Choice] = {}
    _take(choices, body)
    return _answer(choices, body["usage"])


def streamed(lines: list[str]) -> Answer:
    choices: dict[int, Choice] = {}
    usage: dict[str, Any] = {}
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    if data[-1:] != ["[DONE]"]:
        return Answer([], "the stream does not end")
    for chunk in map(json.loads, data[:-1]):
        if "error" in chunk:
            return Answer([], str(chunk["error"]["message"]))
        usage = chunk.get("usage") or usage
        _take(choices, chunk)
    return _answer(choices, usage)


def _take(choices: dict[int, Choice], body: dict[str, Any]) -> None:
    for it in body["choices"]:
        choice = choices.setdefault(it["index"], Choice([], "", None))
        choice.text += it.get("text") or ""
        choice.finish = it.get("finish_reason") or choice.finish
        told = it.get("logprobs") or {}
        for entry in told.get("content") or ():
            choice.tokens.append(bytes(entry["bytes"]))
            choice.likeliest.append(_likeliest([top["logprob"] for top in entry["top_logprobs"]]))
        for token, top in zip(told.get("tokens", ()), told.get("top_logprobs", ()), strict=True):
            choice.tokens.append(named(token))
            choice.likeliest.append(_likeliest(list(top.values())))


def _likeliest(logprobs: list[float]) -> np.ndarray:
    return np.sort(np.array(logprobs))[::-1][:_TOP]


def _answer(choices: dict[int, Choice], usage: dict[str, Any]) -> Answer:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Answer([choices[at] for at in sorted(choices)], None, cached)


def _sendable(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With pictures as data URLs."""

    def part(it: dict[str, Any]) -> dict[str, Any]:
        if it["type"] != "image_url":
            return it
        return {"type": "image_url", "image_url": {"url": _data_url(it["image_url"]["url"])}}

    return [
        message
        if isinstance(message["content"], str)
        else {**message, "content": [*map(part, message["content"])]}
        for message in messages
    ]


def _megabytes(size: int) -> str:
    """As the command line takes it: no less than one."""
    return f"{max(1.0, size / 1e6):.6f}MB"


def _data_url(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@contextlib.contextmanager
def slow_disk() -> Iterator[None]:
    """For the processes that are started meanwhile."""
    before = dict(os.environ)
    path = [str(Path(__file__).parent / "slow"), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ |= {"PYTHONPATH": os.pathsep.join(path), "BUSHEL_TEST_DISK_DELAY": str(_SLOW)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
