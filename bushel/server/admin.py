"""What is not an API of someone else's: health, metrics, status, cache, log, cancelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from bushel.core.version import VERSION
from bushel.server.api.openapi import documented
from bushel.server.callers import ApiKeys
from bushel.server.errors import ApiError, unavailable
from bushel.server.http.request_body import JsonRoute
from bushel.server.observability import logs

if TYPE_CHECKING:
    from bushel.server.service.services import Services

RequestId = Annotated[
    str,
    Path(max_length=64, description="As the header x-request-id has it, or a reply's `id`."),
]
# Of several models one; the first, where none is named.
_OF_MODEL = documented(more={404: "No such model."})
_NAMED = "A name that the model is served under"
ModelQuery = Annotated[
    str | None, Query(max_length=256, description=f"{_NAMED} (default: the first one's).")
]
StatusQuery = Annotated[
    str | None, Query(max_length=256, description=f"{_NAMED} (default: all models).")
]
LineNumber = Annotated[
    int, Query(ge=0, le=2**53, description="Only lines behind this one, by their numbers.")
]


class Health(BaseModel):
    status: str = Field(description="ok; where requests are not answered it is a 503.")


class Version(BaseModel):
    version: str = Field(description="As the package has it.")


class Reused(BaseModel):
    """Counted since the server began, over all engines."""

    asked_tokens: int = Field(description="Prompt tokens that were looked for.")
    reused_tokens: int = Field(description="Prompt tokens that were not computed again.")
    hits: dict[str, int] = Field(
        description="Requests of whose prompt something was reused, by kind."
    )
    misses: dict[str, int] = Field(
        description="Requests whose prompt was computed whole, by reason."
    )
    evicted: int = Field(description="What was let go to make room.")


class Cache(BaseModel):
    """What is kept of earlier prompts; with `on`, sizes and counts of the present engine."""

    model_config = ConfigDict(extra="allow")

    on: bool = Field(description="Whether anything is kept.")
    why: str = Field("", description="Why nothing is.")
    since_start: Reused = Field(description="What came of it.")


class LogEntry(BaseModel):
    number: int = Field(description="Which one it is, of all lines since the server began.")
    level: str = Field(description="info, warning, error or another level of Python's logging.")
    text: str = Field(description="The line, as the log has it.")


class LogTail(BaseModel):
    """The last lines of the log."""

    last: int = Field(description="The number to ask for those behind it with.")
    lines: list[LogEntry] = Field(description="In the order in which they were written.")


class Cancelled(BaseModel):
    id: str = Field(description="The request's id, without an API's prefix.")
    cancelled: bool = Field(description="Always true; others are a 404.")


def admin_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    keys = ApiKeys(services.options)

    @routes.get("/health", responses=documented(), summary="Whether requests are answered")
    async def health() -> Health:
        reason = services.health()
        if reason is not None:
            raise unavailable(reason)
        return Health(status="ok")

    @routes.get("/version", responses=documented(), summary="Bushel's version")
    async def version() -> Version:
        return Version(version=VERSION)

    @routes.get(
        "/metrics",
        response_class=Response,
        responses={
            200: {
                "description": "Prometheus' text format.",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **documented(),
        },
        summary="Counters for Prometheus",
    )
    async def metrics() -> Response:
        payload, kind = services.metrics.render()
        return Response(payload, headers={"content-type": kind})

    @routes.get("/v1/status", responses=_OF_MODEL, summary="What is running, and on what")
    async def status(request: Request, model: StatusQuery = None) -> dict[str, Any]:
        caller = keys.caller(request.headers)
        if model is not None or not services.several:
            return await services.of(model).status(caller)
        return await services.status(caller)

    @routes.delete(
        "/v1/requests/{request_id}",
        responses=documented(more={404: "No such request is running."}),
        summary="Cancel a running request",
    )
    async def cancel(request_id: RequestId, request: Request) -> Cancelled:
        # Replies carry the id behind their API's prefix.
        plain = request_id.rpartition("-")[2].rpartition("_")[2]
        caller = keys.caller(request.headers)
        if not any(service.cancel(caller, plain) for service in services.all):
            raise ApiError(404, "No such request is running.", code="request_not_found")
        return Cancelled(id=plain, cancelled=True)

    @routes.get("/v1/log", responses=documented(), summary="The last lines of the server's log")
    async def log(request: Request, after: LineNumber = 0) -> LogTail:
        keys.caller(request.headers).require_operator("Reading the log")
        lines = [LogEntry(**line._asdict()) for line in logs.recent(after)]
        return LogTail(last=lines[-1].number if lines else after, lines=lines)

    _add_cache_routes(routes, services, keys)
    return routes


def _add_cache_routes(routes: APIRouter, services: Services, keys: ApiKeys) -> None:
    kept = "What is kept of earlier prompts"

    @routes.get("/v1/cache", responses=_OF_MODEL, summary=kept)
    async def cache(model: ModelQuery = None) -> Cache:
        return Cache(**await services.of(model).cache())

    @routes.delete("/v1/cache", responses=_OF_MODEL, summary=f"{kept} is forgotten, files too")
    async def clear_cache(request: Request, model: ModelQuery = None) -> Cache:
        keys.caller(request.headers).require_operator("Clearing the cache")
        return Cache(**await services.of(model).clear_cache())
