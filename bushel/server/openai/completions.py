"""`POST /v1/completions`: text after text, for many prompts at once if need be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from bushel.core import Event
from bushel.server.access import owner_of
from bushel.server.api.response import ApiResponse
from bushel.server.http import sse
from bushel.server.http.request_body import JsonRoute
from bushel.server.openai.errors import documented
from bushel.server.openai.logprobs import EncodedLogprobs, LegacyLogprobs, ReplyRoom
from bushel.server.openai.params import (
    check_amount,
    check_ids,
    completion_params,
    note_unknown,
    salt,
)
from bushel.server.openai.schema import CompletionRequest
from bushel.server.openai.shapes import Completion, streamed
from bushel.server.openai.stream import Chunked
from bushel.server.openai.totals import Totals
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

_REPLY_TOKENS = 16  # as OpenAI documents it
_encode = msgspec.json.encode


def completion_routes(service: Service) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/v1/completions",
        response_model=Completion,
        responses={200: streamed(), **documented(body=True, work=True)},
        summary="What a model writes after each prompt",
    )
    async def completions(body: CompletionRequest, request: Request) -> Response:
        note_unknown(body)
        model = service.names.resolve(body.model)
        params = completion_params(body)
        check_amount(service, len(body.prompt), params, _REPLY_TOKENS)
        check_ids(service, body.prompt)
        owner = owner_of(service.options, request.headers)
        jobs = [
            GenerationJob(
                request={"prompt" if isinstance(prompt, str) else "prompt_token_ids": prompt},
                params=params,
                model=model,
                api="completions",
                reply_tokens=_REPLY_TOKENS,
                stream=bool(body.stream),
                timeout=body.timeout,
                owner=owner,
                salt=salt(service, request.headers, body),
            )
            for prompt in body.prompt
        ]

        async def writer(answer: MultiTicket) -> CompletionWriter:
            echoed = await _echoed(service, answer, body, owner) if body.echo else None
            return CompletionWriter(service, answer, body, model, echoed)

        return ApiResponse(service, jobs, writer, stream=bool(body.stream))

    return routes


async def _echoed(
    service: Service, answer: MultiTicket, body: CompletionRequest, owner: str
) -> list[str]:
    """Every prompt as text."""

    async def text(prompt: str | list[int], ids: tuple[int, ...]) -> str:
        return prompt if isinstance(prompt, str) else await service.decode(ids, owner)

    pairs = zip(body.prompt, answer.tickets, strict=True)
    return list(await asyncio.gather(*(text(said, it.prompt_ids) for said, it in pairs)))


class _Part(msgspec.Struct):
    """What an event adds to one choice; the fold of them is the whole choice."""

    texts: list[str] = []
    logprobs: dict[str, list[Any]] | None = None
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, more: _Part) -> None:
        self.texts += more.texts
        self.finish_reason = more.finish_reason or self.finish_reason
        if self.logprobs is None:
            self.logprobs = more.logprobs
        elif more.logprobs is not None:
            for name, values in more.logprobs.items():
                self.logprobs[name] += values


class _Whole(msgspec.Struct):
    """One choice so far."""

    room: ReplyRoom
    texts: list[str] = []
    logprobs: dict[str, EncodedLogprobs] = {}
    finish_reason: str | None = None

    def add(self, part: _Part) -> None:
        self.texts += part.texts
        self.finish_reason = part.finish_reason or self.finish_reason
        for name, values in (part.logprobs or {}).items():
            self.logprobs.setdefault(name, EncodedLogprobs(self.room)).add(values)

    def choice(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "text": "".join(self.texts),
            "logprobs": {name: it.list() for name, it in self.logprobs.items()} or None,
            "finish_reason": self.finish_reason,
        }


class CompletionWriter(Chunked):
    """echoed: the prompts' texts, where they are to come first."""

    def __init__(
        self,
        service: Service,
        answer: MultiTicket,
        body: CompletionRequest,
        model: str,
        echoed: Sequence[str] | None,
    ):
        self._answer = answer
        self._totals = Totals(answer, body)
        self._silent = body.max_tokens == 0
        self._echoed = echoed
        self._each = body.choices  # choices per prompt
        count = answer.choices
        self._echoes = set(range(count)) if echoed is not None else set[int]()
        self._logprobs = (
            None
            if body.logprobs is None
            else [LegacyLogprobs(service.vocabulary) for _ in range(count)]
        )
        room = ReplyRoom(service.options.limits.reply_bytes)
        self._whole = [_Whole(room) for _ in range(count)]
        self._told = [0] * count  # of each prompt's tokens, those whose log-probabilities are
        self._fields = {
            "id": f"cmpl-{answer.id}",
            "object": "text_completion",
            "created": answer.created,
            "model": model,
        }
        self._head = b"data: " + _encode(self._fields)[:-1] + b',"choices":['

    def _part(self, event: Event) -> _Part:
        """What an event says to the client: an echo comes first, and nothing of a reply that
        was not wanted (`max_tokens` 0).
        """
        part = _Part(finish_reason=event.finish_reason)
        if event.choice in self._echoes:
            self._echoes.discard(event.choice)
            assert self._echoed is not None
            part.texts.append(self._echoed[event.choice // self._each])
        if event.prompt_logprobs and self._logprobs is not None:
            part.add(self._echo(event))
        if self._silent:
            part.finish_reason = event.finish_reason and "length"
            return part
        self._totals.tokens += len(event.token_ids)
        said = _Part([event.text])
        if self._logprobs is not None and event.logprobs:
            said.logprobs = self._logprobs[event.choice].reply(event.logprobs)
        part.add(said)
        return part

    def _echo(self, event: Event) -> _Part:
        """Of a long prompt they come in slices."""
        assert self._logprobs is not None
        ids = self._answer.tickets[event.choice // self._each].prompt_ids
        at, found = self._told[event.choice], event.prompt_logprobs
        self._told[event.choice] = end = at + len(found)
        return _Part(logprobs=self._logprobs[event.choice].prompt(ids[at:end], found))

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        return b""

    def write(self, events: Sequence[Event]) -> bytes:
        chunks: list[bytes] = []
        for event in events:
            part = self._part(event)
            text = part.text
            if text or part.logprobs:
                logprobs = b"null" if part.logprobs is None else _encode(part.logprobs)
                chunks.append(self._chunk(event.choice, _encode(text), logprobs, b"null"))
            if part.finish_reason is not None:
                finish = _encode(part.finish_reason)
                chunks.append(self._chunk(event.choice, b'""', b"null", finish))
        return b"".join(chunks)

    def _chunk(self, choice: int, text: bytes, logprobs: bytes, finish: bytes) -> bytes:
        form = b'%b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]%b'
        return form % (self._head, choice, text, logprobs, finish, self._totals.tail())

    def end(self) -> bytes:
        return self._totals.last(self._head) + sse.DONE

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            self._whole[event.choice].add(self._part(event))

    def whole(self) -> bytes:
        choices = [part.choice(at) for at, part in enumerate(self._whole)]
        usage = self._totals.usage()
        return _encode({**self._fields, "choices": choices, "usage": usage})
