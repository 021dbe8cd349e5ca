"""A reply to a conversation as chunks, or as one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bushel.core import Delta, Event, TextDelta, ThoughtDelta
from bushel.server.api.logprobs import EncodedLogprobs, ReplyRoom, logprob_entries
from bushel.server.http import sse
from bushel.server.openai.chat.calls import ReplyCalls
from bushel.server.openai.chat.schema import ChatRequest
from bushel.server.openai.chunks import Chunked, ChunkUsage, what_stopped
from bushel.server.openai.prompt_logprobs import prompt_logprob_entries
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

_encode = msgspec.json.encode


class _Folded(msgspec.Struct):
    """One choice so far. The texts stay apart, since joining them each time costs their square."""

    logprobs: EncodedLogprobs
    calls: ReplyCalls
    token_ids: list[int] = []
    texts: list[str] = []
    thoughts: list[str] = []
    finish_reason: str | None = None
    stopped: str | int | None = None

    def add(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.texts.append(delta.text)
        elif isinstance(delta, ThoughtDelta):
            self.thoughts.append(delta.text)
        else:
            self.calls.take(delta)

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "refusal": None}
        message["content"] = "".join(self.texts) if self.texts or not self.calls else None
        if self.thoughts:
            message["reasoning_content"] = message["reasoning"] = "".join(self.thoughts)
        return message | self.calls.message()


def _delta(delta: Delta, calls: ReplyCalls) -> bytes:
    """As a chunk's `delta`; empty for what chunks do not tell."""
    if isinstance(delta, TextDelta):
        return b'{"content":' + _encode(delta.text) + b"}"
    if isinstance(delta, ThoughtDelta):  # clients read one of two names
        text = _encode(delta.text)
        return b'{"reasoning_content":' + text + b',"reasoning":' + text + b"}"
    told = calls.take(delta)
    return b"" if told is None else _encode(told)


class ChatWriter(Chunked):
    """Chunks are put together from parts that are encoded once per request.

    | head | index | "delta": ... | "logprobs": ... | "finish_reason": ... | tail |
    """

    def __init__(self, service: Service, answer: MultiTicket, body: ChatRequest, model: str):
        self._vocabulary = service.vocabulary
        self._usage = ChunkUsage(answer, body)
        self._logprobs = bool(body.logprobs)
        self._thoughts = body.tells_thoughts
        self._stop_ids = frozenset(body.stop_token_ids or ())
        self._tells_ids = bool(body.return_token_ids)
        self._prompt_ids = answer.tickets[0].prompt_ids
        self._prompt_count = body.prompt_logprobs
        self._fields = {"id": f"chatcmpl-{answer.id}", "created": answer.created, "model": model}
        head = _encode({**self._fields, "object": "chat.completion.chunk"})[:-1]
        self._head = b"data: " + head + b',"choices":['
        self._indexed = [self._head + b'{"index":%d,"delta":' % at for at in range(answer.choices)]
        room = ReplyRoom(service.options.limits.reply_bytes)
        custom, older = body.custom_tools, bool(body.functions)
        self._folded = [
            _Folded(EncodedLogprobs(room), ReplyCalls(custom, older=older))
            for _ in range(answer.choices)
        ]
        self._prompt_logprobs = EncodedLogprobs(room)

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        role = b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        first, *others = (indexed + role for indexed in self._indexed)
        if self._tells_ids:
            first += b',"prompt_token_ids":' + _encode(self._prompt_ids)
        return b"".join(chunk + self._usage.tail() for chunk in (first, *others))

    def write(self, events: Sequence[Event]) -> bytes:
        chunks: list[bytes] = []
        for event in events:
            self._usage.take(event)
            head, tail = self._indexed[event.choice], self._usage.tail()
            calls = self._folded[event.choice].calls
            deltas = [_delta(delta, calls) for delta in self._told(event)]
            ids = self._ids(event)
            if ((self._logprobs and event.logprobs) or ids) and not any(deltas):
                deltas = [b'{"content":""}']  # their text is still being held back
            entries = self._entries(event) if self._logprobs else b"null"
            for delta in deltas:
                if delta:
                    chunks += (head, delta, b',"logprobs":', entries)
                    chunks += (ids, b',"finish_reason":null}]', tail)
                    entries, ids = b"null", b""
            if event.finish_reason is not None:
                chunks += (head, b'{},"logprobs":null,"finish_reason":"')
                stopped = _encode(what_stopped(event, self._stop_ids))
                reason = calls.finish_reason(event.finish_reason)
                chunks += (reason.encode(), b'","stop_reason":', stopped)
                chunks += (b',"matched_stop":', stopped, b"}]", tail)
        return b"".join(chunks)

    def _told(self, event: Event) -> Sequence[Delta]:
        if self._thoughts:
            return event.deltas
        return [delta for delta in event.deltas if not isinstance(delta, ThoughtDelta)]

    def _ids(self, event: Event) -> bytes:
        """A chunk's tokens, if they are told."""
        told = self._tells_ids and event.token_ids
        return b',"token_ids":' + _encode(event.token_ids) if told else b""

    def end(self) -> bytes:
        return self._usage.last(self._head) + sse.DONE

    def _entries(self, event: Event) -> bytes:
        content = logprob_entries(self._vocabulary, event.logprobs)
        return _encode({"content": content, "refusal": None})

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            choice = self._folded[event.choice]
            if self._tells_ids:
                choice.token_ids += event.token_ids
            if self._prompt_count is not None and event.choice == 0:
                told = event.prompt_logprobs, self._prompt_count
                self._prompt_logprobs.add(prompt_logprob_entries(self._vocabulary, *told))
            for delta in self._told(event):
                choice.add(delta)
            if self._logprobs:
                choice.logprobs.add(logprob_entries(self._vocabulary, event.logprobs))
            if event.finish_reason is not None:
                choice.finish_reason = choice.calls.finish_reason(event.finish_reason)
                choice.stopped = what_stopped(event, self._stop_ids)
            self._usage.take(event)

    def whole(self) -> bytes:
        choices = [self._choice(at, choice) for at, choice in enumerate(self._folded)]
        usage = self._usage.usage()
        reply = {**self._fields, "object": "chat.completion", "choices": choices, "usage": usage}
        if self._tells_ids:
            reply["prompt_token_ids"] = self._prompt_ids
        if self._prompt_count is not None:
            reply["prompt_logprobs"] = self._prompt_logprobs.list()
        return _encode(reply)

    def _choice(self, at: int, choice: _Folded) -> dict[str, Any]:
        logprobs = None
        if self._logprobs:
            logprobs = {"content": choice.logprobs.list(), "refusal": None}
        ids = {"token_ids": choice.token_ids} if self._tells_ids else {}
        return {
            "index": at,
            "message": choice.message(),
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stopped,
            "matched_stop": choice.stopped,
            **ids,
        }
