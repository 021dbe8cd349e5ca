"""`POST /v1/completions`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from bushel.core import SamplingParams
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import documented, streamed
from bushel.server.api.request import generation_job
from bushel.server.api.request_size import check_size
from bushel.server.api.response import ApiResponse
from bushel.server.api.unread_fields import note_unread
from bushel.server.http.request_body import JsonRoute
from bushel.server.openai.chunks import failed_stream
from bushel.server.openai.completions.schema import Completion, CompletionRequest
from bushel.server.openai.completions.writer import CompletionWriter
from bushel.server.openai.prompt_logprobs import require_whole_reply
from bushel.server.openai.schema import STREAMED
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_REPLY_TOKENS = 16  # as OpenAI documents it


def completion_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/v1/completions",
        response_model=Completion,
        responses={200: streamed(STREAMED), **documented(body=True, work=True)},
        summary="What a model writes after each prompt",
    )
    async def completions(body: CompletionRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        model = service.names.resolve(body.model)
        params = _params(body)
        check_size(service, len(body.prompt), params, _REPLY_TOKENS)
        _check_ids(service, body.prompt)
        rest = _rest(body, params)
        jobs = [
            generation_job(
                service,
                request,
                body,
                {"prompt" if isinstance(prompt, str) else "prompt_token_ids": prompt, **rest},
                params,
                model=model,
                api="completions",
                reply_tokens=_REPLY_TOKENS,
                reads=False,
            )
            for prompt in body.prompt
        ]

        async def writer(answer: MultiTicket) -> CompletionWriter:
            echoed = await _echoed(service, answer, body, jobs[0].owner) if body.echo else None
            return CompletionWriter(service, answer, body, model, echoed)

        return ApiResponse(service, jobs, writer, stream=bool(body.stream), failed=failed_stream)

    return routes


def _params(body: CompletionRequest) -> SamplingParams:
    if body.best_of not in (None, body.choices):
        raise InvalidField("best_of", "is not supported, unless it equals n", code=None)
    # The engine makes at least one token; the reply leaves it out where none was wanted.
    limit = max(body.max_tokens, 1) if body.max_tokens is not None else None
    require_whole_reply(body)
    params = body.params(limit, body.logprobs, body.choices)
    wanted = [body.prompt_logprobs, body.logprobs if body.echo else None]
    most = max((count for count in wanted if count is not None), default=None)
    return replace(params, prompt_logprobs=most)


def _rest(body: CompletionRequest, params: SamplingParams) -> dict[str, Any]:
    """What a prompt says beside its text."""
    rest: dict[str, Any] = {}
    if shape := body.shape:
        rest["shape"] = shape
    cut = body.truncate_prompt_tokens is not None
    if body.echo and (body.suffix or cut):
        name = "truncate_prompt_tokens" if cut else "suffix"
        raise InvalidField(name, "is not supported together with echo", code=None)
    if body.suffix:
        if cut or not all(isinstance(prompt, str) for prompt in body.prompt):
            raise InvalidField("suffix", "needs prompts of text that are not cut", code=None)
        rest["suffix"] = body.suffix
    if cut:
        rest |= {"truncate_prompt_tokens": body.truncate_prompt_tokens}
        rest |= {"reply_tokens": params.max_tokens or _REPLY_TOKENS}
    return rest


def _check_ids(service: Service, prompts: Sequence[str | list[int]]) -> None:
    """Said here, an error names the field that the client knows."""
    vocab = service.model_info.vocab if service.model_info else None
    if vocab and any(max(prompt) >= vocab for prompt in prompts if not isinstance(prompt, str)):
        raise InvalidField("prompt", f"must have token ids below {vocab}", code=None)


async def _echoed(
    service: Service, answer: MultiTicket, body: CompletionRequest, owner: str
) -> list[str]:
    """Every prompt as text; what came as ids with its special tokens."""

    async def text(prompt: str | list[int], ids: tuple[int, ...]) -> str:
        return prompt if isinstance(prompt, str) else await service.decode(ids, owner)

    pairs = zip(body.prompt, answer.tickets, strict=True)
    texts = [text(prompt, ticket.prompt_ids) for prompt, ticket in pairs]
    return list(await asyncio.gather(*texts))
