"""`POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from bushel.core import Event, TokenLogprob
from bushel.server import sse
from bushel.server.answer import Answer
from bushel.server.body import JsonRoute
from bushel.server.openai.errors import documented
from bushel.server.openai.logprobs import chat_entries
from bushel.server.openai.params import chat_params, check_amount, note_ignored, note_unknown, salt
from bushel.server.openai.schema import ChatRequest
from bushel.server.openai.shapes import ChatCompletion, streamed
from bushel.server.openai.stream import Chunked
from bushel.server.openai.totals import Totals
from bushel.server.reply import Reply
from bushel.server.service import Job

if TYPE_CHECKING:
    from bushel.server.service import Service

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
        check_amount(service, 1, params)
        job = Job(
            request=_prompt(service, body),
            params=params,
            model=model,
            api="chat",
            reply_tokens=_REPLY_TOKENS,
            stream=bool(body.stream),
            timeout=body.timeout,
            salt=salt(service, request.headers, body),
        )

        async def writer(answer: Answer) -> ChatWriter:
            return ChatWriter(service, answer, body, model)

        return Reply(service, [job], writer, stream=bool(body.stream))

    return routes


def _prompt(service: Service, body: ChatRequest) -> dict[str, Any]:
    options = dict(body.chat_template_kwargs or {})
    if body.add_generation_prompt is not None:
        options["add_generation_prompt"] = body.add_generation_prompt
    if body.continue_final_message is not None:
        options["continue_final_message"] = body.continue_final_message
    if body.reasoning_effort is not None:
        known = service.facts.template_options if service.facts else ()
        if "reasoning_effort" in known:
            options.setdefault("reasoning_effort", body.reasoning_effort)
        else:
            note_ignored("reasoning_effort", "the model's template does not know it")
    return {"messages": body.messages, "chat_template_kwargs": options}


class _Folded(msgspec.Struct):
    """One choice so far. The texts stay apart, since joining them each time costs their square."""

    texts: list[str] = []
    logprobs: list[TokenLogprob] = []
    finish_reason: str | None = None


class ChatWriter(Chunked):
    """Chunks are put together from parts that are encoded once per request.

    | head | index | "delta": ... | "logprobs": ... | "finish_reason": ... | tail |
    """

    def __init__(self, service: Service, answer: Answer, body: ChatRequest, model: str):
        self._vocabulary = service.vocabulary
        self._totals = Totals(answer, body)
        self._logprobs = bool(body.logprobs)
        self._fields = {"id": f"chatcmpl-{answer.id}", "created": answer.created, "model": model}
        head = _encode({**self._fields, "object": "chat.completion.chunk"})[:-1]
        self._head = b"data: " + head + b',"choices":['
        self._indexed = [self._head + b'{"index":%d,"delta":' % at for at in range(answer.choices)]
        self._folded = [_Folded() for _ in range(answer.choices)]

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        role = b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return b"".join(indexed + role + self._totals.tail() for indexed in self._indexed)

    def write(self, events: Sequence[Event]) -> bytes:
        chunks: list[bytes] = []
        for event in events:
            self._totals.tokens += len(event.token_ids)
            head = self._indexed[event.choice]
            if event.text or event.logprobs:
                chunks += (head, b'{"content":', _encode(event.text), b'},"logprobs":')
                chunks += (self._entries(event), b',"finish_reason":null}]', self._totals.tail())
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
            choice.texts.append(event.text)
            choice.logprobs.extend(event.logprobs)
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
            entries = chat_entries(self._vocabulary, choice.logprobs)
            logprobs = {"content": entries, "refusal": None}
        return {
            "index": at,
            "message": {"role": "assistant", "content": "".join(choice.texts), "refusal": None},
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }
