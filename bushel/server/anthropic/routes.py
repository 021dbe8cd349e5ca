"""`POST /v1/messages`, `POST /v1/messages/count_tokens`, and what its clients probe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from bushel.core import RequestError, SamplingParams
from bushel.core.conversation import Conversation
from bushel.core.wire import Made, Prepare
from bushel.server.access import owner_of
from bushel.server.anthropic.conversation import conversation_of
from bushel.server.anthropic.errors import Threaded, documented
from bushel.server.anthropic.schema import Count, CountRequest, MessageObject, MessagesRequest
from bushel.server.anthropic.writer import MessageWriter
from bushel.server.api.response import ApiResponse
from bushel.server.counting import CountJob
from bushel.server.errors import ApiError
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute, conversation, said_in
from bushel.server.openai.params import note_unknown, salt
from bushel.server.openai.schema import Sampling
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

# Where a request does not say, as every client does.
_REPLY_TOKENS = 4096


def message_routes(service: Service) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/v1/messages",
        response_model=MessageObject,
        responses={200: _streamed(), **documented(work=True)},
        summary="A model's reply to a conversation, as Anthropic's clients ask for it",
    )
    async def messages(body: MessagesRequest, request: Request) -> Response:
        model = _checked(service, body)
        job = GenerationJob(
            request=await conversation(request, lambda: _conversation(said_in(request))),
            params=_params(body),
            model=model,
            api="messages",
            reply_tokens=_REPLY_TOKENS,
            stream=bool(body.stream),
            timeout=body.timeout,
            owner=owner_of(service.options, request.headers),
            salt=salt(service, request.headers, Sampling(cache_salt=body.cache_salt)),
            reads=True,
        )

        async def writer(answer: MultiTicket) -> MessageWriter:
            return MessageWriter(
                answer,
                model,
                hides_thoughts=body.hides_thoughts,
                silent=body.max_tokens == 0,
            )

        return ApiResponse(service, [job], writer, stream=bool(body.stream))

    @routes.post(
        "/v1/messages/count_tokens",
        response_model=Count,
        responses=documented(work=True),
        summary="How many tokens a conversation has",
    )
    async def count_tokens(body: CountRequest, request: Request) -> Response:
        model = _checked(service, body)
        name = request.scope["state"]["request_id"]
        said = await conversation(request, lambda: _conversation(said_in(request)))
        message = Prepare(name, dict(said))
        job = CountJob(message, "count_tokens", model, owner_of(service.options, request.headers))

        async def work() -> Count:
            made = await service.count(job)
            assert isinstance(made, Made)
            return Count(input_tokens=len(made.ids))

        return Awaited(work)

    _add_probes(routes)
    return routes


def _add_probes(routes: APIRouter) -> None:
    """Some clients ask at their start whether anyone is there, without a key."""
    for path in ("/", "/api/hello"):

        @routes.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
        async def hello() -> Response:
            return Response(b"{}", media_type="application/json")


def _checked(service: Service, body: CountRequest) -> str:
    """The model's name."""
    note_unknown(body)
    if body.thread is not None:
        raise Threaded
    return service.names.resolve(body.model)


def _conversation(body: dict[str, Any]) -> Conversation:
    try:
        return conversation_of(body)
    except RequestError as error:
        raise ApiError.of(error) from None


def _params(body: MessagesRequest) -> SamplingParams:
    # The engine makes at least one token; the reply leaves it out where none was wanted.
    limit = None if body.max_tokens is None else max(body.max_tokens, 1)
    return SamplingParams(
        max_tokens=limit,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=body.stop_sequences,
    )


def _streamed() -> dict[str, Any]:
    return {
        "description": "The reply; with `stream`, server-sent events.",
        "content": {"text/event-stream": {}},
    }
