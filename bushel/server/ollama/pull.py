"""`POST /api/pull`: a download from the hub, told line by line.

It is the same download that `/v1/hub/pulls` lists, and goes on when the client goes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Receive, Scope, Send

from bushel.server.api.descriptions import about
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Hint, Unsupported
from bushel.server.api.openapi import documented, streamed
from bushel.server.api.unread_fields import note_unread
from bushel.server.errors import ApiError
from bushel.server.http import sse
from bushel.server.http.disconnect import Awaited, ClientGone, present
from bushel.server.http.request_body import JsonRoute
from bushel.server.hub.pulls import Pull, Pulls
from bushel.server.hub.routes import DiskRights, require_id
from bushel.server.ollama.errors import OllamaError, failed_stream
from bushel.server.ollama.models import digest_of
from bushel.server.ollama.names import hub_id
from bushel.server.ollama.schema import NDJSON, Streams
from bushel.server.ollama.writer import HEADERS, line

if TYPE_CHECKING:
    from bushel.server.service.services import Services

_SECONDS = 0.25  # between two looks at how far it is
_STATUSES = {"not_found": 404, "gated": 403, "refused": 403, "invalid_id": 400}
_MANIFEST = "pulling manifest"


class OllamaPullRequest(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: Hint | None = Field(
        None, description="The model's id on the hub: owner/name, also behind hf.co/."
    )
    name: Hint | None = Field(None, description="The older name of `model`.")
    stream: Streams = True
    insecure: Unsupported = None


class OllamaProgress(BaseModel):
    """Of a stream, a line."""

    status: str = Field(description="What is being done; success at the end.")
    digest: Annotated[str | None, about("What tells this download from others.")] = None
    total: Annotated[int | None, about("Bytes that the model has.")] = None
    completed: Annotated[int | None, about("Bytes that are here.")] = None


def _failure(pull: Pull) -> ApiError | None:
    if pull.state == "done":
        return None
    reason = pull.reason or "The download was cancelled."
    return ApiError(_STATUSES.get(pull.code or "", 503), reason, code=pull.code, param="model")


def _progress(pull: Pull) -> dict[str, Any]:
    here = pull.progress
    if not here.bytes_total:
        return {"status": _MANIFEST}
    return {
        "status": f"pulling {pull.model}",
        "digest": f"sha256:{digest_of(pull.model)}",
        "total": here.bytes_total,
        "completed": here.bytes_done,
    }


class PullLines(Response):
    """A line whenever something came, and one that says how it ended."""

    def __init__(self, pull: Pull):
        super().__init__()
        self._pull = pull

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with present(receive):
                await sse.start(send, HEADERS)
                await self._tell(send)
        except ClientGone:
            return

    async def _tell(self, send: Send) -> None:
        pull, told = self._pull, {"status": _MANIFEST}
        await sse.body(send, line(told))
        assert pull.task is not None
        while pull.lasts:
            await asyncio.wait([pull.task], timeout=_SECONDS)
            if (now := _progress(pull)) != told:
                told = now
                await sse.body(send, line(told))
        failure = _failure(pull)
        last = line({"status": "success"}) if failure is None else failed_stream(failure)
        await sse.body(send, last, more=False)


def pull_routes(services: Services, pulls: Pulls) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    rights = DiskRights(services)
    errors = documented(
        body=True,
        more={
            403: "It needs an operator's key, or the hub gives it to nobody without one.",
            404: "The hub has no such model.",
            409: "It is being removed.",
            429: "Too many downloads wait.",
        },
        model=OllamaError,
    )

    @routes.post(
        "/api/pull",
        response_model=OllamaProgress,
        responses={200: streamed("How far it is, as lines of JSON.", NDJSON), **errors},
        summary="Download a model from the hub, as Ollama's clients ask for it",
    )
    async def pull(body: OllamaPullRequest, request: Request) -> Response:
        note_unread(body)
        rights.change(request.headers)
        name = body.model or body.name
        if not name:
            raise InvalidField("model", "is missing")
        model = hub_id(name)
        require_id(model, "model", owned=True)
        begun = pulls.start(model)
        if body.stream:
            return PullLines(begun)

        async def work() -> OllamaProgress:
            assert begun.task is not None
            await asyncio.wait([begun.task])
            if (failure := _failure(begun)) is not None:
                raise failure
            return OllamaProgress(status="success")

        return Awaited(work)

    return routes
