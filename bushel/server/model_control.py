"""Operators load, unload and pin models; anyone else loads one by asking for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from bushel.server.api.openapi import documented
from bushel.server.callers import ApiKeys
from bushel.server.http.disconnect import Awaited
from bushel.server.openai.models import ModelCard, ModelName, model_card

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_MORE = {
    403: "It needs an operator's key.",
    404: "No such model.",
    409: "It is in use, or pinned.",
    503: "It cannot be loaded.",
}


def control_routes(services: Services) -> APIRouter:
    routes = APIRouter()
    loading, keys = services.loading, ApiKeys(services.options)

    async def pin(service: Service) -> None:
        loading.pin(service, True)
        await loading.load(service)

    async def unpin(service: Service) -> None:
        loading.pin(service, False)

    def add(name: str, act: Callable[[Service], Awaitable[None]], summary: str) -> None:
        answers: dict[int | str, dict[str, Any]] = documented(more=_MORE)

        @routes.post(
            f"/v1/models/{{model_id:path}}/{name}",
            response_model=ModelCard,
            responses=answers,
            summary=summary,
            operation_id=f"{name}_model",
        )
        async def change(model_id: ModelName, request: Request) -> Response:
            keys.caller(request.headers).require_operator("Loading and unloading models")
            service = services.of(model_id)

            async def work() -> ModelCard:
                await act(service)
                return model_card(services, model_id)

            return Awaited(work)

    add("load", loading.load, "Load a model, and wait until it is there")
    add("unload", loading.unload, "Unload a model, and wait until its memory is free")
    add("pin", pin, "Load a model, and keep it")
    add("unpin", unpin, "Let a model be unloaded again")
    return routes
