"""One HTTP exchange over a connection of its own, by a client that costs little.

A reply is read to its end, streamed or not, and what it says is brought into one form whatever
API it came by. What ends otherwise is `Refusal` (a typed error) or `Broken` (anything else).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 300.0  # seconds for a whole reply; the server is to answer in far less
_READ = 1 << 16


class Refusal(Exception):
    """A typed error, as a status of its own or as the last event of a stream."""

    def __init__(self, status: int, code: str, message: str = ""):
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.message = message


class Broken(Exception):
    """Neither a reply nor a typed error."""


@dataclass
class Choice:
    """What one choice of a reply says; calls as (name, arguments)."""

    text: str = ""
    finish: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


Choices = dict[int, Choice]


@dataclass(frozen=True)
class Body:
    """An HTTP response whose header has been read."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    async def whole(self) -> bytes:
        return b"".join([piece async for piece in self.pieces])


Pace = Callable[[], Awaitable[None]]


async def _at_once() -> None:
    return None


class Exchange:
    """`async with Exchange(port, ...) as body`; leaving it closes the connection."""

    def __init__(
        self,
        port: int,
        method: str,
        path: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        pace: Pace = _at_once,
    ):
        """pace: waited for before each read."""
        self._port = port
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
        given = {"content-type": "application/json"}
        given |= {name.lower(): value for name, value in (headers or {}).items()}
        lines += [f"{name}: {value}" for name, value in given.items()]
        lines += [f"Content-Length: {len(payload)}", "", ""]
        self._request = "\r\n".join(lines).encode() + payload
        self._pace = pace
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Body:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        try:
            self._writer.write(self._request)
            await self._writer.drain()
        except ConnectionError:
            pass  # it may have answered before it had read all
        return await self._head(reader)

    async def __aexit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    async def _head(self, reader: asyncio.StreamReader) -> Body:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken("the connection ended without an answer") from error
        status = int(head[0].split()[1])
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        chunked = headers.get("transfer-encoding") == "chunked"
        pieces = self._chunks(reader) if chunked else self._plain(reader, headers)
        return Body(status, headers, pieces)

    async def _plain(
        self, reader: asyncio.StreamReader, headers: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        left = int(headers.get("content-length", "0"))
        while left:
            await self._pace()
            piece = await reader.read(min(left, _READ))
            if not piece:
                raise Broken("the reply was cut off")
            left -= len(piece)
            yield piece

    async def _chunks(self, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        try:
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await self._pace()
                yield (await reader.readexactly(size + 2))[:-2]
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Broken("the stream was cut off") from error


# -- what a reply says, in four APIs -----------------------------------------------------------


async def choices_of(api: str, body: Body) -> Choices:
    """Refusal or Broken if it is no whole reply."""
    if body.status != 200:
        raise refusal(body.status, await body.whole())
    if body.headers.get("content-type", "").startswith("text/event-stream"):
        text = (await body.whole()).decode()
        return _STREAMED[api]([_event(it) for it in text.split("\n\n") if it.strip()])
    return _WHOLE[api](json.loads(await body.whole()))


def refusal(status: int, payload: bytes) -> Exception:
    try:
        error = json.loads(payload)["error"]
        return Refusal(status, str(error.get("code") or error["type"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return Broken(f"{status} without a typed error: {payload[:200]!r}")


def _event(block: str) -> Any:
    """An event's data; None for comments."""
    data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
    if not data or data == ["[DONE]"]:
        return data[0] if data else None
    return json.loads("\n".join(data))


def _failed(error: Mapping[str, Any]) -> Refusal:
    code = str(error.get("code") or error.get("type"))
    return Refusal(200, code, str(error.get("message")))


def _ended(choices: Choices) -> Choices:
    if not choices or any(choice.finish is None for choice in choices.values()):
        raise Broken("a reply without a finish reason")
    return choices


def _chunks_of(events: list[Any], take: Callable[[Choice, Any], None]) -> Choices:
    """What a stream of OpenAI's chunks says; `take` adds what one of them tells of a choice."""
    choices: Choices = {}
    for event in events:
        if isinstance(event, dict) and "error" in event:
            raise _failed(event["error"])
        for it in event["choices"] if isinstance(event, dict) else ():
            choice = choices.setdefault(it["index"], Choice())
            take(choice, it)
            _add_logprobs(choice, it.get("logprobs"))
            choice.finish = it["finish_reason"] or choice.finish
    if not events or events[-1] != "[DONE]":
        raise Broken("a stream without its end")
    return _ended(choices)


def _chat_stream(events: list[Any]) -> Choices:
    return _chunks_of(events, _take_delta)


def _take_delta(choice: Choice, chunk: Any) -> None:
    delta = chunk["delta"]
    choice.text += delta.get("content") or ""
    for call in delta.get("tool_calls") or ():
        function = call["function"]
        if "name" in function:
            choice.calls.append((function["name"], function.get("arguments", "")))
        else:
            name, arguments = choice.calls[call["index"]]
            choice.calls[call["index"]] = name, arguments + function["arguments"]


def _add_logprobs(choice: Choice, logprobs: Any) -> None:
    if logprobs and "content" in logprobs:
        choice.logprobs += [entry["logprob"] for entry in logprobs["content"]]
    elif logprobs:
        choice.logprobs += logprobs["token_logprobs"]


def _chat(reply: Any) -> Choices:
    choices: Choices = {}
    for it in reply["choices"]:
        message = it["message"]
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        choices[it["index"]] = choice = Choice(
            message["content"] or "",
            it["finish_reason"],
            [(call["name"], call["arguments"]) for call in calls],
        )
        _add_logprobs(choice, it.get("logprobs"))
    return _ended(choices)


def _completion_stream(events: list[Any]) -> Choices:
    return _chunks_of(events, _take_text)


def _take_text(choice: Choice, chunk: Any) -> None:
    choice.text += chunk["text"]


def _completion(reply: Any) -> Choices:
    choices: Choices = {}
    for it in reply["choices"]:
        choices[it["index"]] = Choice(it["text"], it["finish_reason"])
        _add_logprobs(choices[it["index"]], it.get("logprobs"))
    return _ended(choices)


def _messages_stream(events: list[Any]) -> Choices:
    choice, tools = Choice(), dict[int, list[str]]()
    for event in events:
        if not isinstance(event, dict):
            continue
        if event["type"] == "error":
            raise _failed(event["error"])
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            tools[event["index"]] = [event["content_block"]["name"], ""]
        if event["type"] == "content_block_delta":
            choice.text += event["delta"].get("text", "")
            if event["index"] in tools:
                tools[event["index"]][1] += event["delta"].get("partial_json", "")
        if event["type"] == "message_delta":
            choice.finish = event["delta"]["stop_reason"]
    last = events[-1] if events else None
    if not isinstance(last, dict) or last["type"] != "message_stop":
        raise Broken("a stream without its end")
    choice.calls = [(name, _canonical(arguments)) for name, arguments in tools.values()]
    return _ended({0: choice})


def _canonical(arguments: str) -> str:
    return json.dumps(json.loads(arguments or "{}"), sort_keys=True)


def _messages(reply: Any) -> Choices:
    text = "".join(it.get("text", "") for it in reply["content"] if it["type"] == "text")
    calls = [
        (it["name"], json.dumps(it["input"], sort_keys=True))
        for it in reply["content"]
        if it["type"] == "tool_use"
    ]
    return _ended({0: Choice(text, reply["stop_reason"], calls)})


def _responses_stream(events: list[Any]) -> Choices:
    last = next((event for event in reversed(events) if isinstance(event, dict)), None)
    if last is None or "response" not in last:
        raise Broken("a stream without its end")
    return _responses(last["response"])


def _responses(reply: Any) -> Choices:
    if reply.get("error"):
        raise _failed(reply["error"])
    if reply["status"] not in ("completed", "incomplete"):
        raise Broken(f"a reply that is {reply['status']}")
    parts = [part for it in reply["output"] if it["type"] == "message" for part in it["content"]]
    calls = [
        (it["name"], it["arguments"]) for it in reply["output"] if it["type"] == "function_call"
    ]
    text = "".join(part.get("text", "") for part in parts)
    return {0: Choice(text, reply["status"], calls)}


_STREAMED: dict[str, Callable[[list[Any]], Choices]] = {
    "chat": _chat_stream,
    "completions": _completion_stream,
    "messages": _messages_stream,
    "responses": _responses_stream,
}
_WHOLE: dict[str, Callable[[Any], Choices]] = {
    "chat": _chat,
    "completions": _completion,
    "messages": _messages,
    "responses": _responses,
}
