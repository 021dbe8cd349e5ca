"""`POST /v1/chat/completions`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from bushel.core import CallBegin, CallPart, Delta, Event, TextDelta, ThoughtDelta
from bushel.server.access import owner_of
from bushel.server.api.response import ApiResponse
from bushel.server.http import sse
from bushel.server.http.request_body import JsonRoute, conversation
from bushel.server.openai.conversation import conversation_of
from bushel.server.openai.errors import documented
from bushel.server.openai.logprobs import EncodedLogprobs, ReplyRoom, chat_entries
from bushel.server.openai.params import chat_params, check_amount, note_unknown, salt
from bushel.server.openai.schema import ChatRequest
from bushel.server.openai.shapes import ChatCompletion, streamed
from bushel.server.openai.stream import Chunked
from bushel.server.openai.totals import Totals
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

# Enough for most replies. Memory for a whole reply is promised when it is admitted, so the rest of
# a long context would leave room for few at once.
_REPLY_TOKENS = 4096
_encode = msgspec.json.encode


def chat_routes(service: Service) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses={200: streamed(), **documented(body=True, work=True)},
        summary="A model's reply to a conversation",
    )
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        note_unknown(body)
        model = service.names.resolve(body.model)
        params = chat_params(body)
        check_amount(service, 1, params, _REPLY_TOKENS)
        job = GenerationJob(
            request=await conversation(request, lambda: conversation_of(body)),
            params=params,
            model=model,
            api="chat",
            reply_tokens=_REPLY_TOKENS,
            stream=bool(body.stream),
            timeout=body.timeout,
            owner=owner_of(service.options, request.headers),
            salt=salt(service, request.headers, body),
            reads=True,
        )

        async def writer(answer: MultiTicket) -> ChatWriter:
            return ChatWriter(service, answer, body, model)

        return ApiResponse(service, [job], writer, stream=bool(body.stream))

    return routes


class _Call(msgspec.Struct):
    id: str
    name: str
    arguments: list[str] = []

    def told(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class _Folded(msgspec.Struct):
    """One choice so far. The texts stay apart, since joining them each time costs their square."""

    logprobs: EncodedLogprobs
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[_Call] = []
    finish_reason: str | None = None

    def add(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self.texts.append(delta.text)
        elif isinstance(delta, ThoughtDelta):
            self.thoughts.append(delta.text)
        elif isinstance(delta, CallBegin):
            self.calls.append(_Call(_new_id(), delta.name))
        elif isinstance(delta, CallPart):
            self.calls[-1].arguments.append(delta.json)

    def message(self) -> dict[str, Any]:
        said: dict[str, Any] = {"role": "assistant", "refusal": None}
        said["content"] = "".join(self.texts) if self.texts or not self.calls else None
        if self.thoughts:
            said["reasoning_content"] = said["reasoning"] = "".join(self.thoughts)
        if self.calls:
            said["tool_calls"] = [call.told() for call in self.calls]
        return said


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _delta(delta: Delta) -> bytes:
    """As a chunk's `delta`; empty for what chunks do not tell."""
    if isinstance(delta, TextDelta):
        return b'{"content":' + _encode(delta.text) + b"}"
    if isinstance(delta, ThoughtDelta):  # clients read one of two names
        text = _encode(delta.text)
        return b'{"reasoning_content":' + text + b',"reasoning":' + text + b"}"
    if isinstance(delta, CallBegin):
        begun = {"index": delta.index, **_Call(_new_id(), delta.name).told()}
        return _encode({"tool_calls": [begun]})
    if isinstance(delta, CallPart):
        part = {"index": delta.index, "function": {"arguments": delta.json}}
        return _encode({"tool_calls": [part]})
    return b""


class ChatWriter(Chunked):
    """Chunks are put together from parts that are encoded once per request.

    | head | index | "delta": ... | "logprobs": ... | "finish_reason": ... | tail |
    """

    def __init__(self, service: Service, answer: MultiTicket, body: ChatRequest, model: str):
        self._vocabulary = service.vocabulary
        self._totals = Totals(answer, body)
        self._logprobs = bool(body.logprobs)
        self._fields = {"id": f"chatcmpl-{answer.id}", "created": answer.created, "model": model}
        head = _encode({**self._fields, "object": "chat.completion.chunk"})[:-1]
        self._head = b"data: " + head + b',"choices":['
        self._indexed = [self._head + b'{"index":%d,"delta":' % at for at in range(answer.choices)]
        room = ReplyRoom(service.options.limits.reply_bytes)
        self._folded = [_Folded(EncodedLogprobs(room)) for _ in range(answer.choices)]

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        role = b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return b"".join(indexed + role + self._totals.tail() for indexed in self._indexed)

    def write(self, events: Sequence[Event]) -> bytes:
        chunks: list[bytes] = []
        for event in events:
            self._totals.tokens += len(event.token_ids)
            head = self._indexed[event.choice]
            said = [it for it in map(_delta, event.deltas) if it]
            if not said and self._logprobs and event.logprobs:
                said = [b'{"content":""}']  # their text is still being held back
            entries = self._entries(event)
            for delta in said:
                chunks += (head, delta, b',"logprobs":', entries)
                chunks += (b',"finish_reason":null}]', self._totals.tail())
                entries = b"null"
            if event.finish_reason is not None:
                chunks += (head, b'{},"logprobs":null,"finish_reason":"')
                chunks += (event.finish_reason.encode(), b'"}]', self._totals.tail())
        return b"".join(chunks)

    def end(self) -> bytes:
        return self._totals.last(self._head) + sse.DONE

    def _entries(self, event: Event) -> bytes:
        if not self._logprobs:
            return b"null"
        content = chat_entries(self._vocabulary, event.logprobs)
        return _encode({"content": content, "refusal": None})

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            choice = self._folded[event.choice]
            for delta in event.deltas:
                choice.add(delta)
            if self._logprobs:
                choice.logprobs.add(chat_entries(self._vocabulary, event.logprobs))
            choice.finish_reason = event.finish_reason or choice.finish_reason
            self._totals.tokens += len(event.token_ids)

    def whole(self) -> bytes:
        choices = [self._choice(at, it) for at, it in enumerate(self._folded)]
        usage = self._totals.usage()
        reply = {**self._fields, "object": "chat.completion", "choices": choices, "usage": usage}
        return _encode(reply)

    def _choice(self, at: int, choice: _Folded) -> dict[str, Any]:
        logprobs = None
        if self._logprobs:
            logprobs = {"content": choice.logprobs.list(), "refusal": None}
        return {
            "index": at,
            "message": choice.message(),
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }
