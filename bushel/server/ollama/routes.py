"""`POST /api/chat` and `POST /api/generate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from bushel.core import SamplingParams
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import documented, streamed
from bushel.server.api.request import generation_job
from bushel.server.api.response import ApiResponse
from bushel.server.api.unread_fields import note_ignored, note_unread
from bushel.server.callers import ApiKeys
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute, make_conversation
from bushel.server.ollama.conversation import chat_conversation, generate_conversation, shape_of
from bushel.server.ollama.errors import OllamaError, failed_stream
from bushel.server.ollama.names import served_as
from bushel.server.ollama.schema import (
    NDJSON,
    STREAMED,
    OllamaChatReply,
    OllamaChatRequest,
    OllamaGenerateReply,
    OllamaGenerateRequest,
    OllamaRequest,
)
from bushel.server.ollama.writer import Form, LineWriter, framing, in_message, in_response, moment
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.services import Services

ERRORS = documented(body=True, work=True, more={404: "No such model."}, model=OllamaError)


def reply_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    replies = {200: streamed(STREAMED, NDJSON), **ERRORS}

    @routes.post(
        "/api/chat",
        response_model=OllamaChatReply,
        responses=replies,
        summary="A model's reply to a conversation, as Ollama's clients ask for it",
    )
    async def chat(body: OllamaChatRequest, request: Request) -> Response:
        _check(body)
        if not body.messages:
            return _loaded(services, body, request, OllamaChatReply, in_message)
        prompt = await make_conversation(request, lambda: chat_conversation(body))
        return _reply(services, body, request, prompt, "ollama_chat", in_message)

    @routes.post(
        "/api/generate",
        response_model=OllamaGenerateReply,
        responses=replies,
        summary="A model's reply to a prompt, as Ollama's clients ask for it",
    )
    async def generate(body: OllamaGenerateRequest, request: Request) -> Response:
        _check(body)
        if not body.prompt and not body.images:
            return _loaded(services, body, request, OllamaGenerateReply, in_response)
        prompt: Mapping[str, Any]
        if body.raw:
            prompt = _raw(body)
        else:
            prompt = await make_conversation(request, lambda: generate_conversation(body))
        return _reply(services, body, request, prompt, "ollama_generate", in_response)

    return routes


def _check(body: OllamaRequest) -> None:
    note_unread(body)
    body.settings.check()
    if body.top_logprobs and not body.logprobs:
        raise InvalidField("top_logprobs", "needs logprobs to be true", code=None)


def _raw(body: OllamaGenerateRequest) -> dict[str, Any]:
    for name in ("images", "system"):
        if getattr(body, name):
            raise InvalidField(name, "cannot go with raw, which is a prompt as it is")
    if body.think:
        raise InvalidField("think", "cannot go with raw: the chat template decides it")
    held = {"shape": shape} if (shape := shape_of(body.format)) else {}
    return {"prompt": body.prompt, **held}


def _reply(
    services: Services,
    body: OllamaRequest,
    request: Request,
    prompt: Mapping[str, Any],
    api: str,
    form: Form,
) -> Response:
    if body.keep_alive is not None:
        note_ignored("keep_alive", "the server decides how long a model stays loaded")
    service, model = served_as(services, body.model)
    job = generation_job(
        service,
        request,
        body,
        prompt,
        _params(body),
        model=model,
        api=api,
        reads="messages" in prompt,
    )

    async def writer(answer: MultiTicket) -> LineWriter:
        return LineWriter(
            service, answer, model, form, reads=job.reads, logprobs=bool(body.logprobs)
        )

    return ApiResponse(
        service,
        [job],
        writer,
        stream=job.stream,
        failed=failed_stream,
        framing=framing(model, form),
    )


def _params(body: OllamaRequest) -> SamplingParams:
    return body.settings.sampling((body.top_logprobs or 0) if body.logprobs else None)


def _loaded(
    services: Services,
    body: OllamaRequest,
    request: Request,
    reply: type[OllamaChatReply] | type[OllamaGenerateReply],
    form: Form,
) -> Response:
    """Of a request that says nothing: it is about whether the model is loaded."""
    service, model = served_as(services, body.model)
    if body.unloads:
        caller = ApiKeys(services.options).caller(request.headers)
        caller.require_operator("Loading and unloading models")

    async def work() -> BaseModel:
        await (services.loading.unload if body.unloads else services.loading.load)(service)
        return reply(
            model=model,
            created_at=moment(),
            done=True,
            done_reason="unload" if body.unloads else "load",
            **form("", "", ()),
        )

    return Awaited(work)
