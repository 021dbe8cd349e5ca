"""`POST /completion`; `/completions` is OpenAI's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from bushel.core import SamplingParams
from bushel.core.wire import Encode, Made
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import documented, streamed
from bushel.server.api.request import UNLIMITED, USUAL_REPLY, generation_job
from bushel.server.api.request_size import check_size
from bushel.server.api.response import ApiResponse
from bushel.server.api.unread_fields import note_unread
from bushel.server.callers import owner_of
from bushel.server.counting import CountJob
from bushel.server.http.request_body import JsonRoute
from bushel.server.llama_cpp.errors import LlamaError
from bushel.server.llama_cpp.prompts import MixedPrompt
from bushel.server.llama_cpp.schema import LlamaCompletion, LlamaCompletionRequest
from bushel.server.llama_cpp.writer import LlamaWriter, failed_stream
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_STREAMED = (
    "The reply, or a list of them where there are several prompts; with `stream`, server-sent "
    "events, of which each prompt's last one has `stop`."
)


def llama_completion_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    errors = documented(body=True, work=True, model=LlamaError)

    @routes.post(
        "/completion",
        response_model=LlamaCompletion | list[LlamaCompletion],
        responses={200: streamed(_STREAMED), **errors},
        summary="What a model writes after each prompt, as llama.cpp's clients ask for it",
    )
    async def completion(body: LlamaCompletionRequest, request: Request) -> Response:
        note_unread(body)
        body.require_known_samplers()
        service = services.of(body.model)
        model = service.names.resolve(body.model)
        params = _params(body)
        check_size(service, len(body.prompt), params, USUAL_REPLY)
        held = {"shape": shape} if (shape := body.shape) else {}
        owner = owner_of(service.options, request.headers)
        prompts = [
            await _one_kind(service, request, prompt, model, owner, at)
            for at, prompt in enumerate(body.prompt)
        ]
        _check_ids(service, prompts)
        jobs = [
            generation_job(
                service,
                request,
                body,
                {"prompt" if isinstance(prompt, str) else "prompt_token_ids": prompt, **held},
                params,
                model=model,
                api="completion",
                reads=False,
            )
            for prompt in prompts
        ]

        async def writer(answer: MultiTicket) -> LlamaWriter:
            texts = await _texts(service, answer, prompts, owner)
            return LlamaWriter(service, answer, body, model, texts)

        return ApiResponse(service, jobs, writer, stream=bool(body.stream), failed=failed_stream)

    return routes


def _params(body: LlamaCompletionRequest) -> SamplingParams:
    limit = body.n_predict
    if limit is not None:
        # The engine makes at least one token; the reply leaves it out where none was wanted.
        limit = UNLIMITED if limit < 0 else max(limit, 1)
    return body.params(limit, body.n_probs or None)


async def _one_kind(
    service: Service, request: Request, prompt: MixedPrompt, model: str, owner: str, number: int
) -> str | list[int]:
    """A text, or ids alone; a prompt that begins with a text begins as the tokenizer begins it."""
    if isinstance(prompt, str):
        return prompt
    ids: list[int] = []
    for at, piece in enumerate(prompt):
        if isinstance(piece, int):
            ids.append(piece)
            continue
        name = f"{request.scope['state']['request_id']}-{number}-{at}"
        job = CountJob(Encode(name, piece, at == 0), "tokenize", model, owner)
        made = await service.count(job)
        assert isinstance(made, Made)
        ids += made.ids
    return ids


def _check_ids(service: Service, prompts: Sequence[str | list[int]]) -> None:
    """Said here, an error names the field that the client knows."""
    vocab = service.model_info.vocab if service.model_info else None
    given: list[Any] = [max(prompt) for prompt in prompts if not isinstance(prompt, str) and prompt]
    if vocab and any(token >= vocab for token in given):
        raise InvalidField("prompt", f"must have token ids below {vocab}", code=None)


async def _texts(
    service: Service, answer: MultiTicket, prompts: Sequence[str | list[int]], owner: str
) -> list[str]:
    async def text(prompt: str | list[int], ids: tuple[int, ...]) -> str:
        return prompt if isinstance(prompt, str) else await service.decode(ids, owner)

    pairs = zip(prompts, answer.tickets, strict=True)
    return list(await asyncio.gather(*[text(prompt, one.prompt_ids) for prompt, one in pairs]))
