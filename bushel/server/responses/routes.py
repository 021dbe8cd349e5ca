"""`/v1/responses`: to make a response, count or compact one, and look at those that are kept."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from bushel.core.wire import Made, Prepare
from bushel.server.api.errors import InvalidField, unsupported
from bushel.server.api.openapi import documented, streamed
from bushel.server.api.request import USUAL_REPLY, generation_job
from bushel.server.api.response import ApiResponse, WholeResponse
from bushel.server.api.unread_fields import note_ignored, note_unread
from bushel.server.callers import ApiKeys, covered_key, owner_of
from bushel.server.counting import CountJob
from bushel.server.errors import ApiError
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute, aside, make_conversation
from bushel.server.responses.compaction import (
    CompactedResponse,
    CompactionWriter,
    messages_of_user,
    summary_request,
)
from bushel.server.responses.conversation import ResponseConversation, parse_request
from bushel.server.responses.envelope import Envelope, failed_stream, fields_of, refused
from bushel.server.responses.items import Item, references, shown
from bushel.server.responses.schema import (
    Deleted,
    InputTokens,
    ItemList,
    ResponseObject,
    ResponsesRequest,
)
from bushel.server.responses.store import (
    EncodedItem,
    Kept,
    Store,
    encoded,
    no_previous,
    no_response,
)
from bushel.server.responses.writer import ResponseWriter
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_STREAMED = "The response; with `stream`, server-sent events that end with it."
_PREFIX = "resp_"
# Encoding or decoding 1 MB takes about 2 ms, as long as the event loop should be busy.
_LARGE = 1 << 20
_NAMES = {"messages": "input", "response_format": "text.format", "thinking": "reasoning"}
T = TypeVar("T")
ResponseId = Annotated[
    str, Path(min_length=1, max_length=256, description="The id of a response that is kept.")
]
Streamed = Annotated[
    bool, Query(description="Not supported: a response that has ended is no stream.")
]
Limit = Annotated[int, Query(ge=1, le=100, description="Items on a page.")]
Order = Annotated[
    Literal["asc", "desc"], Query(description="The earliest item first, or the latest.")
]
After = Annotated[str | None, Query(description="The id of the item before the page.")]
_MISSING = {404: "The response is not kept."}


def response_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    store = Store()
    errors = documented(body=True, work=True, more={404: "No such model, or an item is not kept."})

    @routes.post(
        "/v1/responses",
        response_model=ResponseObject,
        responses={200: streamed(_STREAMED), **errors},
        summary="A model's response to input items",
    )
    async def create(body: ResponsesRequest, request: Request) -> Response:
        return await _create(services, store, body, request)

    @routes.post(
        "/v1/responses/input_tokens",
        response_model=InputTokens,
        responses=errors,
        summary="How many tokens a response's input has",
    )
    async def count(body: ResponsesRequest, request: Request) -> Response:
        return await _count(services, store, body, request)

    @routes.post(
        "/v1/responses/compact",
        response_model=CompactedResponse,
        responses=errors,
        summary="A conversation made shorter, to go on from",
    )
    async def compact(body: ResponsesRequest, request: Request) -> Response:
        return await _compact(services, store, body, request)

    @routes.get("/v1/responses", include_in_schema=False)
    async def probe(request: Request) -> Response:
        """Codex tries a WebSocket first; this status, and no other, makes it go on at once."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            raise ApiError(426, "There are no WebSockets here: POST it.", code="upgrade_required")
        raise HTTPException(405, headers={"allow": "POST"})

    _kept_routes(routes, store, ApiKeys(services.options))
    return routes


# -- a new response -----------------------------------------------------------------------------


async def _create(
    services: Services, store: Store, body: ResponsesRequest, request: Request
) -> Response:
    service, model = _found(services, body)
    holder, own_salt = covered_key(request.headers), body.cache_salt or ""
    earlier = _earlier(store, holder, own_salt, body.previous_response_id)
    parsed = await _parsed(service, store, body, request, earlier)
    own = await aside(request, lambda: encoded(parsed.items if body.kept else ()))
    asked = await aside(request, lambda: fields_of(body, model))
    conversation = await make_conversation(request, lambda: parsed.conversation)
    params = body.params(body.max_output_tokens, body.logprobs)
    job = generation_job(service, request, body, conversation, params, model=model, api="responses")

    async def writer(answer: MultiTicket) -> ResponseWriter:
        name = f"{_PREFIX}{answer.id}"

        def keep(payload: bytes, output: list[Item]) -> None:
            store.keep(Kept(name, holder, own_salt, payload, earlier, own, encoded(output)))

        wanted = keep if body.kept else None
        made = Envelope(name, answer.created, asked)
        return ResponseWriter(service, answer, made, body, parsed.offers, wanted)

    def envelope() -> Envelope:
        return Envelope(f"{_PREFIX}{uuid.uuid4().hex}", int(time.time()), asked)

    return _Reply(
        service,
        [job],
        writer,
        stream=job.stream,
        failed=lambda error: failed_stream(envelope(), error),
        refused=lambda error: refused(envelope(), error),
    )


async def _count(
    services: Services, store: Store, body: ResponsesRequest, request: Request
) -> Response:
    """Of what the same body would be answered by."""
    service, model = _found(services, body)
    holder, own_salt = covered_key(request.headers), body.cache_salt or ""
    earlier = _earlier(store, holder, own_salt, body.previous_response_id)
    parsed = await _parsed(service, store, body, request, earlier)
    conversation = await make_conversation(request, lambda: parsed.conversation)
    message = Prepare(request.scope["state"]["request_id"], dict(conversation))
    owner = owner_of(service.options, request.headers)
    job = CountJob(message, "input_tokens", model, owner)

    async def work() -> InputTokens:
        made = await service.count(job)
        assert isinstance(made, Made)
        return InputTokens(input_tokens=len(made.ids))

    return Awaited(work)


async def _compact(
    services: Services, store: Store, body: ResponsesRequest, request: Request
) -> Response:
    service, model = _found(services, body)
    if body.stream:
        raise unsupported("stream", "is not supported here: a compaction comes whole")
    holder, own_salt = covered_key(request.headers), body.cache_salt or ""
    earlier = _earlier(store, holder, own_salt, body.previous_response_id)
    parsed = await _parsed(service, store, body, request, earlier)
    conversation = await make_conversation(request, lambda: summary_request(parsed.conversation))
    everything = [*(encoded_item.item() for encoded_item in earlier), *parsed.items]
    job = generation_job(
        service,
        request,
        body,
        conversation,
        body.params(body.max_output_tokens, None),
        model=model,
        api="compact",
        reply_tokens=USUAL_REPLY,
    )

    async def writer(answer: MultiTicket) -> CompactionWriter:
        return CompactionWriter(answer, f"{_PREFIX}{answer.id}", messages_of_user(everything))

    return _OwnNames(service, [job], writer)


def _found(services: Services, body: ResponsesRequest) -> tuple[Service, str]:
    """Who serves the model, and the model's name."""
    note_unread(body)
    if body.truncation == "auto":
        note_ignored("truncation: auto", "conversations that are too long are refused")
    service = services.of(body.model)
    return service, service.names.resolve(body.model)


async def _parsed(
    service: Service,
    store: Store,
    body: ResponsesRequest,
    request: Request,
    earlier: tuple[EncodedItem, ...],
) -> ResponseConversation:
    """With what it refers to."""
    holder, own_salt = covered_key(request.headers), body.cache_salt or ""
    before = await _aside(
        lambda: [encoded_item.item() for encoded_item in earlier],
        sum(len(encoded_item.json) for encoded_item in earlier),
    )
    # The store belongs to the event loop; what is made of its items does not.
    looked_up = [store.find(holder, own_salt, name) for name in references(body.input)]
    referenced = [item for item in looked_up if item is not None]
    _check_size(service, [*earlier, *referenced])
    by_id = {item.id: item for item in referenced}

    def find(name: str) -> Item | None:
        return by_id[name].item() if name in by_id else None

    return await aside(request, lambda: parse_request(body.as_dict(), before, find))


async def _aside(work: Callable[[], T], size: int) -> T:
    """What takes long for so many bytes is done in a thread."""
    return work() if size < _LARGE else await asyncio.to_thread(work)


def _check_size(service: Service, kept: Sequence[EncodedItem]) -> None:
    """What is only named, and may be named often, counts like what is sent."""
    most = service.options.limits.body_bytes
    if sum(len(item.json) for item in kept) > most:
        raise ApiError(
            413,
            f"The items that the request refers to are larger than {most} bytes in all.",
            code="body_too_large",
        )


class _OwnNames(WholeResponse):
    """What is wrong with a conversation is told by the names that its fields have here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except ApiError as error:
            error.param = _NAMES.get(error.param or "", error.param)
            raise


class _Reply(_OwnNames, ApiResponse):
    """The same, or a stream."""


def _earlier(store: Store, owner: str, own_salt: str, name: str | None) -> tuple[EncodedItem, ...]:
    if name is None:
        return ()
    kept = store.get(owner, name)
    if kept is None or kept.salt != own_salt:
        raise no_previous(name)
    return kept.conversation


# -- responses that are kept --------------------------------------------------------------------


def _kept_routes(routes: APIRouter, store: Store, keys: ApiKeys) -> None:
    errors = documented(more=_MISSING)

    def owner(request: Request, name: str) -> str:
        """Whose response of that name is meant: an operator's key opens everyone's."""
        caller = keys.caller(request.headers)
        everyones = bool(keys) and caller.operator
        return (store.owner(name) if everyones else None) or covered_key(request.headers)

    def kept(request: Request, name: str) -> Kept:
        response = store.get(owner(request, name), name)
        if response is None:
            raise no_response(name)
        return response

    @routes.get(
        "/v1/responses/{response_id}",
        response_model=ResponseObject,
        responses=errors,
        summary="A response that is kept",
    )
    async def retrieve(
        response_id: ResponseId, request: Request, stream: Streamed = False
    ) -> Response:
        response = kept(request, response_id)
        if stream:
            raise unsupported("stream", "is not supported for a response that has ended")
        return Response(response.payload, media_type="application/json")

    @routes.delete(
        "/v1/responses/{response_id}", responses=errors, summary="Keep a response no longer"
    )
    async def delete(response_id: ResponseId, request: Request) -> Deleted:
        if not store.drop(owner(request, response_id), response_id):
            raise no_response(response_id)
        return Deleted(id=response_id)

    @routes.post(
        "/v1/responses/{response_id}/cancel",
        response_model=ResponseObject,
        responses=documented(body=True, more=_MISSING),
        summary="Refused: there are no background responses",
    )
    async def cancel(response_id: ResponseId, request: Request) -> Response:
        kept(request, response_id)
        raise ApiError(
            400,
            "Only background responses can be cancelled, and there are none here. A response ends "
            "when its client closes the connection.",
            code="not_cancellable",
        )

    @routes.get(
        "/v1/responses/{response_id}/input_items",
        responses=errors,
        summary="What a response was made from",
    )
    async def input_items(
        response_id: ResponseId,
        request: Request,
        limit: Limit = 20,
        order: Order = "desc",
        after: After = None,
    ) -> ItemList:
        response = kept(request, response_id)
        items = [*response.earlier, *response.own]
        if order == "desc":
            items.reverse()
        if after is not None:
            names = [item.id for item in items]
            if after not in names:
                raise InvalidField("after", "is not the id of one of the items")
            items = items[names.index(after) + 1 :]
        return _page(items[:limit], more=len(items) > limit)


def _page(items: list[EncodedItem], *, more: bool) -> ItemList:
    return ItemList(
        data=[shown(encoded_item.item()) for encoded_item in items],
        first_id=items[0].id if items else None,
        last_id=items[-1].id if items else None,
        has_more=more,
    )
