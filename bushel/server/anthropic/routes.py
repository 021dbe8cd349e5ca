"""`POST /v1/messages`, `POST /v1/messages/count_tokens`, and what its clients probe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from bushel.core import SamplingParams
from bushel.core.wire import Made, Prepare
from bushel.server.anthropic.conversation import conversation_of
from bushel.server.anthropic.errors import MessagesError, threads_unsupported
from bushel.server.anthropic.schema import Count, CountRequest, MessageObject, MessagesRequest
from bushel.server.anthropic.writer import MessageWriter, failed_stream
from bushel.server.api.openapi import documented, streamed
from bushel.server.api.request import generation_job
from bushel.server.api.response import ApiResponse
from bushel.server.api.unread_fields import note_unread
from bushel.server.callers import owner_of
from bushel.server.counting import CountJob
from bushel.server.errors import ApiError
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute, json_body, make_conversation
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_STREAMED = "The reply; with `stream`, server-sent events."


def message_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    errors = documented(body=True, work=True, more={404: "No such model."}, model=MessagesError)

    @routes.post(
        "/v1/messages",
        response_model=MessageObject,
        responses={200: streamed(_STREAMED), **errors},
        summary="A model's reply to a conversation, as Anthropic's clients ask for it",
    )
    async def messages(body: MessagesRequest, request: Request) -> Response:
        service, model = _check_and_find(services, body)
        conversation = await make_conversation(request, lambda: conversation_of(json_body(request)))
        params = _params(body)
        job = generation_job(
            service, request, body, conversation, params, model=model, api="messages"
        )

        async def writer(answer: MultiTicket) -> MessageWriter:
            return MessageWriter(
                answer,
                model,
                hides_thoughts=body.hides_thoughts,
                silent=body.max_tokens == 0,
            )

        def failed(error: ApiError) -> bytes:
            return failed_stream(error, request.scope["state"]["request_id"])

        return ApiResponse(service, [job], writer, stream=job.stream, failed=failed)

    @routes.post(
        "/v1/messages/count_tokens",
        response_model=Count,
        responses=errors,
        summary="How many tokens a conversation has",
    )
    async def count_tokens(body: CountRequest, request: Request) -> Response:
        service, model = _check_and_find(services, body)
        name = request.scope["state"]["request_id"]
        conversation = await make_conversation(request, lambda: conversation_of(json_body(request)))
        message = Prepare(name, dict(conversation))
        job = CountJob(message, "count_tokens", model, owner_of(service.options, request.headers))

        async def work() -> Count:
            made = await service.count(job)
            assert isinstance(made, Made)
            return Count(input_tokens=len(made.ids))

        return Awaited(work)

    @routes.api_route("/api/hello", methods=["GET", "HEAD"], include_in_schema=False)
    async def hello() -> Response:
        """Some clients ask at their start whether anyone is there, here or at `/`."""
        return Response(b"{}", media_type="application/json")

    return routes


def _check_and_find(services: Services, body: CountRequest) -> tuple[Service, str]:
    """Who serves the model, and the model's name."""
    note_unread(body)
    if body.thread is not None:
        raise threads_unsupported()
    service = services.of(body.model)
    return service, service.names.resolve(body.model)


def _params(body: MessagesRequest) -> SamplingParams:
    # The engine makes at least one token; the reply leaves it out where none was wanted.
    limit = None if body.max_tokens is None else max(body.max_tokens, 1)
    return SamplingParams(
        max_tokens=limit,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        stop=body.stop_sequences,
        ignore_eos=bool(body.ignore_eos),
        **body.sampler_params(),
    )
