"""The routes of the hub's cache, all of them for operators.

What changes the disk needs a key where other machines can reach the server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.datastructures import Headers

from bushel.core.checkpoint import is_hub_id, is_repo_id
from bushel.core.hub_errors import HubError
from bushel.server.api.openapi import documented
from bushel.server.api.unread_fields import note_unread
from bushel.server.callers import ApiKeys, is_loopback
from bushel.server.errors import ApiError
from bushel.server.http.disconnect import Awaited
from bushel.server.http.request_body import JsonRoute
from bushel.server.hub.jobs import run_job
from bushel.server.hub.messages import InspectModel, ListModels
from bushel.server.hub.pulls import Pull, Pulls
from bushel.server.hub.schema import (
    HubModelCard,
    HubModelList,
    InspectionReport,
    PullCard,
    PullList,
    PullRequest,
    RemovedModel,
)

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_OPERATOR = {403: "It needs an operator's key."}
_NO_PULL = "No download of that model was asked for."
_STATUSES = {"not_on_disk": 404, "in_use": 409, "not_deleted": 409, "invalid_id": 400}
_UNLOADED = ("unloaded", "failed")

HubId = Annotated[
    str, Path(min_length=1, max_length=256, description="The model's id on the hub: owner/name.")
]
InspectedName = Annotated[
    str,
    Query(
        min_length=1,
        max_length=256,
        description="A name that a model is served under, or the hub id of one on disk.",
    ),
]
RowCount = Annotated[
    int | None, Query(ge=1, le=4096, description="Rows to tell the memory of (default: a few).")
]
RowLength = Annotated[
    int | None,
    Query(ge=1, le=1 << 30, description="Tokens of each row (default: a few lengths)."),
]


class DiskRights:
    """Who may look at this machine's disk, and change what is on it."""

    def __init__(self, services: Services):
        self._keys = ApiKeys(services.options)
        self._open = not self._keys and not is_loopback(services.options.host)

    def look(self, headers: Headers) -> None:
        self._keys.caller(headers).require_operator("Managing models on disk")

    def change(self, headers: Headers) -> None:
        self.look(headers)
        if self._open:
            raise ApiError(
                403,
                "Other machines can reach this server, so it downloads and deletes models only for "
                "who has a key. Start it with --operator-key KEY and send that.",
                code="operator_only",
            )


def pulls_of(services: Services) -> Pulls:
    """All downloads of a server, whatever API they were asked for by."""
    return Pulls(lambda model: services.add_downloaded([model]), services.discard_downloaded)


def hub_routes(services: Services, pulls: Pulls) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)
    rights = DiskRights(services)
    _add_model_routes(routes, services, rights, pulls)
    _add_pull_routes(routes, rights, pulls)
    _add_inspection(routes, services, rights)
    return routes


def _add_model_routes(
    routes: APIRouter, services: Services, rights: DiskRights, pulls: Pulls
) -> None:
    listing: list[asyncio.Task[dict[str, Any]]] = []  # one, for all who ask meanwhile

    async def look() -> dict[str, Any]:
        while True:  # until nothing came or went meanwhile
            before = pulls.changes
            found = await run_job(ListModels())
            if pulls.changes == before:
                return found

    async def listed() -> dict[str, Any]:
        if not listing:
            task = asyncio.create_task(look())
            listing.append(task)
            task.add_done_callback(lambda _: listing.clear())
        return await asyncio.shield(listing[0])

    @routes.get(
        "/v1/hub/models",
        response_model=HubModelList,
        responses=documented(more=_OPERATOR),
        summary="Models on this machine's disk",
    )
    async def hub_models(request: Request) -> Response:
        rights.look(request.headers)

        async def work() -> HubModelList:
            found = await _answered(listed())
            services.add_downloaded([card["id"] for card in found["models"]])
            data = [
                HubModelCard(**card, **_served(services, card["id"])) for card in found["models"]
            ]
            return HubModelList(
                data=data,
                partial=found["partial"],
                free_bytes=found["free_bytes"],
                serves_downloads=services.loading.takes_downloads,
            )

        return Awaited(work)

    @routes.delete(
        "/v1/hub/models/{model_id:path}",
        response_model=RemovedModel,
        responses=documented(
            more={
                **_OPERATOR,
                404: "It is not in the hub's cache.",
                409: "It is loaded, being downloaded, or cannot be deleted.",
            }
        ),
        summary="Delete a model from this machine's disk",
    )
    async def remove_hub_model(model_id: HubId, request: Request) -> Response:
        rights.change(request.headers)
        require_id(model_id, "model_id")
        loaded = tuple(
            service.options.engine.model
            for service in services.all
            if _is_loaded(services, service)
        )
        if model_id in loaded:
            raise ApiError(
                409, f"{model_id} is loaded; unload it first.", code="in_use", param="model_id"
            )

        async def work() -> RemovedModel:
            freed = await _answered(pulls.remove(model_id, loaded))
            return RemovedModel(id=model_id, freed_bytes=freed)

        return Awaited(work)


def _add_pull_routes(routes: APIRouter, rights: DiskRights, pulls: Pulls) -> None:
    missing = documented(more={**_OPERATOR, 404: _NO_PULL})

    def pull_of(model: str) -> Pull:
        pull = pulls.of(model)
        if pull is None:
            raise ApiError(404, _NO_PULL, code="pull_not_found", param="model_id")
        return pull

    @routes.post(
        "/v1/hub/pulls",
        status_code=202,
        responses=documented(
            body=True,
            more={
                **_OPERATOR,
                409: "It is being removed.",
                429: "Too many downloads wait.",
            },
        ),
        summary="Download a model from the hub, or what is missing of it",
    )
    async def pull(body: PullRequest, request: Request) -> PullCard:
        note_unread(body)
        rights.change(request.headers)
        require_id(body.model, "model", owned=True)
        return PullCard.of(pulls.start(body.model))

    @routes.get(
        "/v1/hub/pulls",
        responses=documented(more=_OPERATOR),
        summary="Downloads, and how far they are",
    )
    async def all_pulls(request: Request) -> PullList:
        rights.look(request.headers)
        return PullList(data=[PullCard.of(one) for one in pulls.all])

    @routes.get("/v1/hub/pulls/{model_id:path}", responses=missing, summary="How far a download is")
    async def one_pull(model_id: HubId, request: Request) -> PullCard:
        rights.look(request.headers)
        return PullCard.of(pull_of(model_id))

    @routes.delete(
        "/v1/hub/pulls/{model_id:path}",
        responses=missing,
        summary="Cancel a download, or forget one that has ended",
    )
    async def cancel_pull(model_id: HubId, request: Request) -> PullCard:
        rights.change(request.headers)
        found = pull_of(model_id)
        await pulls.cancel(found)
        return PullCard.of(found)


def _add_inspection(routes: APIRouter, services: Services, rights: DiskRights) -> None:
    turns = asyncio.Semaphore(1)  # each opens a checkpoint

    @routes.get(
        "/v1/inspection",
        response_model=InspectionReport,
        responses=documented(
            more={
                **_OPERATOR,
                404: "No such model is served or on disk.",
                409: "It cannot be read.",
            }
        ),
        summary="What a model is and how much memory it will need, without loading it",
    )
    async def inspection(
        request: Request, model: InspectedName, rows: RowCount = None, tokens: RowLength = None
    ) -> Response:
        rights.look(request.headers)
        served = next((one for one in services.all if model in one.names.all), None)
        if served is None:
            require_id(model, "model")
        engine = services.options.engine if served is None else served.options.engine
        job = InspectModel(
            model if served is None else engine.model,
            on_disk=served is None or is_hub_id(engine.model),
            dtype=engine.dtype,
            trust_remote_code=served is not None and engine.trust_remote_code,
            rows=rows,
            tokens=tokens,
        )

        async def work() -> InspectionReport:
            async with turns:
                return InspectionReport(id=model, **await _answered(run_job(job), 409))

        return Awaited(work)


async def _answered(work: Any, otherwise: int = 503) -> Any:
    """What a job came to, or what to tell of its failure. otherwise: the status of one that is not
    the client's.
    """
    try:
        return await work
    except HubError as error:
        status = _STATUSES.get(error.code, otherwise)
        raise ApiError(status, str(error), code=error.code, param="model") from error


def require_id(model: str, param: str, *, owned: bool = False) -> None:
    if not is_repo_id(model) or (owned and "/" not in model):
        raise ApiError(
            400, "That is no hub id of the form owner/name.", code="invalid_id", param=param
        )


def _is_loaded(services: Services, service: Service) -> bool:
    return services.loading.report(service).state not in _UNLOADED


def _served(services: Services, model: str) -> dict[str, Any]:
    serving = [one for one in services.all if one.options.engine.model == model]
    return {
        "served_as": [name for one in serving for name in one.names.all],
        "loaded": any(_is_loaded(services, one) for one in serving),
    }
