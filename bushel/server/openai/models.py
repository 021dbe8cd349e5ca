"""`GET /v1/models`: every name a request may use, and how long a context may be.

OpenAI's clients and Anthropic's ask at the same address, so a model is what both expect of one.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from bushel.server.api.descriptions import KIND_OF_OBJECT, about
from bushel.server.api.openapi import documented
from bushel.server.api.reply_fields import FIRST_ID, LAST_ID
from bushel.server.service.services import ModelState

if TYPE_CHECKING:
    from bushel.server.service.services import Services


ModelName = Annotated[
    str, Path(min_length=1, max_length=256, description="A name that the model is served under.")
]


_NAME = about("A name that requests may use.")
_SINCE = "When the server began"
_CONTEXT = about("Tokens that a prompt and its reply may have; null while it is not loaded.")


class ModelCard(BaseModel):
    id: Annotated[str, _NAME]
    object: Annotated[Literal["model"], KIND_OF_OBJECT] = "model"
    created: Annotated[int, about(f"{_SINCE}, in seconds since 1970.")]
    owned_by: Annotated[str, about("Who serves it.")] = "bushel"
    root: str = Field(description="The first of the names that this model is served under.")
    max_model_len: Annotated[int | None, _CONTEXT]
    type: Annotated[Literal["model"], KIND_OF_OBJECT] = "model"
    display_name: Annotated[str, _NAME]
    created_at: Annotated[datetime, about(f"{_SINCE}.")]
    lifecycle: Annotated[Literal["active"], about("No model is being retired.")] = "active"
    max_input_tokens: Annotated[int | None, _CONTEXT]
    state: ModelState = Field(description="Whether it is loaded, or on its way.")
    reason: str | None = Field(description="Why it is not ready.")
    pinned: bool = Field(description="Whether it stays loaded.")
    memory_bytes: int = Field(description="Memory that its engine may use.")


class ModelList(BaseModel):
    """All of them, whatever part was asked for."""

    object: Annotated[Literal["list"], KIND_OF_OBJECT] = "list"
    data: list[ModelCard] = Field(description="Every name, with the model behind it.")
    has_more: Annotated[Literal[False], about("There are no further pages.")] = False
    first_id: Annotated[str, FIRST_ID]
    last_id: Annotated[str, LAST_ID]


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
