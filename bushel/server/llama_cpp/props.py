"""`GET /props`: what a client of llama.cpp asks about the server before it asks the model."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from bushel.core.params import LIBRARY_DEFAULTS
from bushel.core.version import VERSION
from bushel.server.api.openapi import documented
from bushel.server.api.reply_fields import ReplyModel
from bushel.server.llama_cpp.errors import LlamaError

if TYPE_CHECKING:
    from bushel.server.service.services import Services

PropsModel = Annotated[
    str | None,
    Query(
        max_length=256, description="A name that the model is served under (default: the first)."
    ),
]


class LlamaSettings(BaseModel):
    n_ctx: int = Field(description="Tokens of a prompt and its reply; 0 while it is not known.")
    params: dict[str, Any] = Field(description="How tokens are chosen where nobody says.")


class LlamaModalities(BaseModel):
    vision: bool = Field(description="Whether it takes pictures.")
    audio: bool = Field(description="Always false.")


class LlamaProps(BaseModel):
    default_generation_settings: LlamaSettings = Field(description="What requests begin with.")
    total_slots: int = Field(description="Replies that may be written at once.")
    model_alias: ReplyModel
    model_path: str = Field(description="The same: where its files are is not told.")
    chat_template: str = Field(description="Its chat template; empty until it was loaded.")
    modalities: LlamaModalities = Field(description="What it takes beside text.")
    build_info: str = Field(description="Bushel's version.")
    is_sleeping: bool = Field(description="Whether it has to be loaded first.")


def props_routes(services: Services) -> APIRouter:
    routes = APIRouter()

    @routes.get(
        "/props",
        responses=documented(more={404: "No such model."}, model=LlamaError),
        summary="What is served and how, as llama.cpp's clients ask for it",
    )
    async def props(model: PropsModel = None) -> LlamaProps:
        service = services.of(model)
        info = service.model_info
        last = replace(LIBRARY_DEFAULTS, max_tokens=None)  # a reply is as long as it is
        own = last if info is None else info.defaults.over(last)
        params = asdict(service.options.defaults.over(own))
        params["repeat_penalty"] = params.pop("repetition_penalty")
        limit = params.pop("max_tokens")
        return LlamaProps(
            default_generation_settings=LlamaSettings(
                n_ctx=(info.context or 0) if info else 0,
                params={**params, "n_predict": -1 if limit is None else limit},
            ),
            total_slots=service.options.engine.max_batch,
            model_alias=service.names.main,
            model_path=service.names.main,
            chat_template=info.template if info else "",
            modalities=LlamaModalities(vision=bool(info and info.sees), audio=False),
            build_info=f"bushel-{VERSION}",
            is_sleeping=services.loading.report(service).state == "unloaded",
        )

    return routes
