"""`POST /v1/chat/completions`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from bushel.core import SamplingParams
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import documented, streamed
from bushel.server.api.request import USUAL_REPLY, generation_job
from bushel.server.api.request_size import check_size
from bushel.server.api.response import ApiResponse
from bushel.server.api.unread_fields import note_unread
from bushel.server.http.request_body import JsonRoute, make_conversation
from bushel.server.openai.chat.conversation import conversation_of
from bushel.server.openai.chat.schema import ChatCompletion, ChatRequest
from bushel.server.openai.chat.writer import ChatWriter
from bushel.server.openai.chunks import failed_stream
from bushel.server.openai.prompt_logprobs import require_whole_reply
from bushel.server.openai.schema import STREAMED
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.services import Services


def chat_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses={200: streamed(STREAMED), **documented(body=True, work=True)},
        summary="A model's reply to a conversation",
    )
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        model = service.names.resolve(body.model)
        params = _params(body)
        check_size(service, 1, params, USUAL_REPLY)
        conversation = await make_conversation(request, lambda: conversation_of(body))
        job = generation_job(service, request, body, conversation, params, model=model, api="chat")

        async def writer(answer: MultiTicket) -> ChatWriter:
            return ChatWriter(service, answer, body, model)

        return ApiResponse(service, [job], writer, stream=job.stream, failed=failed_stream)

    return routes


def _params(body: ChatRequest) -> SamplingParams:
    if body.top_logprobs and not body.logprobs:
        raise InvalidField("top_logprobs", "needs logprobs to be true", code=None)
    require_whole_reply(body)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    params = body.params(body.limit, logprobs, body.choices)
    return replace(params, prompt_logprobs=body.prompt_logprobs)
