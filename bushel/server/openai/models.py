"""`GET /v1/models`: every name a request may use, and how long a context may be.

OpenAI's clients and Anthropic's ask at the same address, so a model is what both expect of one.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel

from bushel.server.api.openapi import documented
from bushel.server.service.services import ModelState

if TYPE_CHECKING:
    from bushel.server.service.services import Services


ModelName = Annotated[str, Path(min_length=1, max_length=256)]


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "bushel"
    root: str
    max_model_len: int | None
    type: Literal["model"] = "model"
    display_name: str
    created_at: datetime
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int | None
    state: ModelState
    reason: str | None  # why it is not ready
    pinned: bool
    memory_bytes: int  # that it may use


class ModelList(BaseModel):
    """All of them, whatever part was asked for."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
    has_more: Literal[False] = False
    first_id: str
    last_id: str


_created = int(time.time())


def model_card(services: Services, name: str) -> ModelCard:
    """ApiError if nobody serves it."""
    service = services.of(name)
    context = service.model_info.context if service.model_info else None
    report = services.loading.report(service)
    return ModelCard(
        id=name,
        created=_created,
        root=service.names.main,
        max_model_len=context,
        display_name=name,
        created_at=datetime.fromtimestamp(_created, UTC),
        max_input_tokens=context,
        state=report.state,
        reason=report.reason,
        pinned=report.pinned,
        memory_bytes=report.memory_bytes,
    )


def model_routes(services: Services) -> APIRouter:
    routes = APIRouter()

    def model(name: str) -> ModelCard:
        return model_card(services, name)

    @routes.get("/v1/models", responses=documented(), summary="The models that are served")
    async def models() -> ModelList:
        names = services.names
        data = [model(name) for name in names]
        return ModelList(data=data, first_id=names[0], last_id=names[-1])

    missing: dict[int | str, dict[str, Any]] = documented(more={404: "No such model."})

    @routes.get("/v1/models/{model_id:path}", responses=missing, summary="One model")
    async def one_model(model_id: ModelName) -> ModelCard:
        return model(model_id)

    return routes
