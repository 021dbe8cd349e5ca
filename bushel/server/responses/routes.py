"""`/v1/responses`: to make a response, and to look at those that are kept."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from bushel.server.access import ApiKeys, covered_key, owner_of
from bushel.server.api.response import ApiResponse
from bushel.server.errors import ApiError
from bushel.server.http.request_body import JsonRoute, aside, conversation
from bushel.server.openai.errors import documented
from bushel.server.openai.params import note_ignored, note_unknown, salt
from bushel.server.responses.conversation import understood
from bushel.server.responses.envelope import Envelope, fields_of, refused
from bushel.server.responses.errors import unsupported, wrong
from bushel.server.responses.items import Item, references, shown
from bushel.server.responses.response_shapes import Deleted, ItemList, ResponseObject, streamed
from bushel.server.responses.schema import ResponsesRequest
from bushel.server.responses.store import (
    EncodedItems,
    Kept,
    Store,
    encoded,
    no_previous,
    no_response,
)
from bushel.server.responses.writer import ResponseWriter
from bushel.server.service.job import GenerationJob
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

_REPLY_TOKENS = 4096  # as in `openai.chat`
_PREFIX = "resp_"
# Encoding or decoding 1 MB takes about 2 ms, as long as the event loop should be busy.
_LARGE = 1 << 20
_NAMES = {"messages": "input", "response_format": "text.format", "thinking": "reasoning"}
T = TypeVar("T")
ResponseId = Annotated[str, Path(min_length=1, max_length=256)]
_MISSING = {404: "The response is not kept."}


def response_routes(service: Service) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    store = Store()
    errors = documented(body=True, work=True, more={404: "No such model, or an item is not kept."})

    @routes.post(
        "/v1/responses",
        response_model=ResponseObject,
        responses={200: streamed(), **errors},
        summary="A model's response to input items",
    )
    async def create(body: ResponsesRequest, request: Request) -> Response:
        return await _create(service, store, body, request)

    @routes.get("/v1/responses", include_in_schema=False)
    async def probe(request: Request) -> Response:
        """Codex tries a WebSocket first; this status, and no other, makes it go on at once."""
        if request.headers.get("upgrade", "").lower() == "websocket":
            raise ApiError(426, "There are no WebSockets here: POST it.", code="upgrade_required")
        raise HTTPException(405, headers={"allow": "POST"})

    _kept_routes(routes, store, ApiKeys(service.options))
    return routes


# -- a new response -----------------------------------------------------------------------------


async def _create(
    service: Service, store: Store, body: ResponsesRequest, request: Request
) -> Response:
    note_unknown(body)
    if body.truncation == "auto":
        note_ignored("truncation: auto", "conversations that are too long are refused")
    model = service.names.resolve(body.model)
    holder, own_salt = covered_key(request.headers), body.cache_salt or ""
    earlier = _earlier(store, holder, own_salt, body.previous_response_id)
    before = await _aside(
        lambda: [it.item() for it in earlier], sum(len(it.json) for it in earlier)
    )
    # The store belongs to the event loop; what is made of its items does not.
    named = [store.find(holder, own_salt, name) for name in references(body.input)]
    found = {it.id: it for it in named if it is not None}
    _check_amount(service, [*earlier, *(it for it in named if it is not None)])

    def find(name: str) -> Item | None:
        return found[name].item() if name in found else None

    talk = await aside(request, lambda: understood(body.said(), before, find))
    own = await aside(request, lambda: encoded(talk.items if body.kept else ()))
    asked = await aside(request, lambda: fields_of(body, model))
    stream = bool(body.stream)
    job = GenerationJob(
        request=await conversation(request, lambda: talk.conversation),
        params=body.params(body.max_output_tokens, body.logprobs),
        model=model,
        api="responses",
        reply_tokens=_REPLY_TOKENS,
        stream=stream,
        timeout=body.timeout,
        owner=owner_of(service.options, request.headers),
        salt=salt(service, request.headers, body),
        reads=True,
    )

    async def writer(answer: MultiTicket) -> ResponseWriter:
        name = f"{_PREFIX}{answer.id}"

        def keep(payload: bytes, output: list[Item]) -> None:
            store.keep(Kept(name, holder, own_salt, payload, earlier, own, encoded(output)))

        envelope = Envelope(name, answer.created, asked)
        wanted = keep if body.kept else None
        return ResponseWriter(service, answer, envelope, body, talk.offers, wanted)

    def told(error: ApiError) -> bytes | None:
        name = f"{_PREFIX}{uuid.uuid4().hex}"
        return refused(Envelope(name, int(time.time()), asked), error)

    return _Reply(service, [job], writer, stream=stream, refused=told)


async def _aside(work: Callable[[], T], size: int) -> T:
    """What takes long for so many bytes is done in a thread."""
    return work() if size < _LARGE else await asyncio.to_thread(work)


def _check_amount(service: Service, kept: Sequence[EncodedItems]) -> None:
    """What is only named, and may be named often, counts like what is sent."""
    most = service.options.limits.body_bytes
    if sum(len(it.json) for it in kept) > most:
        raise ApiError(
            413,
            f"The items that the request refers to are larger than {most} bytes in all.",
            code="body_too_large",
        )


class _Reply(ApiResponse):
    """What is wrong with a conversation is told by the names that its fields have here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except ApiError as error:
            error.param = _NAMES.get(error.param or "", error.param)
            raise


def _earlier(store: Store, owner: str, own_salt: str, name: str | None) -> tuple[EncodedItems, ...]:
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
        found = store.get(owner(request, name), name)
        if found is None:
            raise no_response(name)
        return found

    @routes.get(
        "/v1/responses/{response_id}",
        response_model=ResponseObject,
        responses=errors,
        summary="A response that is kept",
    )
    async def retrieve(response_id: ResponseId, request: Request, stream: bool = False) -> Response:
        found = kept(request, response_id)
        if stream:
            raise unsupported("stream", "is not supported for a response that has ended")
        return Response(found.payload, media_type="application/json")

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
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
    ) -> ItemList:
        found = kept(request, response_id)
        items = [*found.earlier, *found.own]
        if order == "desc":
            items.reverse()
        if after is not None:
            names = [it.id for it in items]
            if after not in names:
                raise wrong("after", "is not the id of one of the items")
            items = items[names.index(after) + 1 :]
        return _page(items[:limit], more=len(items) > limit)


def _page(items: list[EncodedItems], *, more: bool) -> ItemList:
    return ItemList(
        data=[shown(it.item()) for it in items],
        first_id=items[0].id if items else None,
        last_id=items[-1].id if items else None,
        has_more=more,
    )
