"""The HTTP application: every route, and one form for everything that goes wrong."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bushel.core.version import VERSION
from bushel.server.access import Access
from bushel.server.admin import admin_routes
from bushel.server.anthropic.errors import MessagesError
from bushel.server.anthropic.routes import message_routes
from bushel.server.api.errors import ErrorBody, first_invalid
from bushel.server.api.openapi import schemas
from bushel.server.apply_template import template_routes
from bushel.server.batches.batches import Batches
from bushel.server.batches.routes import batch_routes
from bushel.server.error_response import refusal, speaks_anthropic
from bushel.server.errors import ApiError, internal_error
from bushel.server.http.body_memory import Bodies
from bushel.server.http.root_path import RootPath
from bushel.server.hub.routes import hub_routes, pulls_of
from bushel.server.llama_cpp.errors import LlamaError
from bushel.server.llama_cpp.props import props_routes
from bushel.server.llama_cpp.routes import llama_completion_routes
from bushel.server.model_control import control_routes
from bushel.server.ollama.embeddings import vector_routes
from bushel.server.ollama.errors import OllamaError
from bushel.server.ollama.models import listing_routes
from bushel.server.ollama.pull import pull_routes
from bushel.server.ollama.routes import reply_routes
from bushel.server.openai.chat.routes import chat_routes
from bushel.server.openai.completions.routes import completion_routes
from bushel.server.openai.embeddings.routes import embedding_routes
from bushel.server.openai.models import model_routes
from bushel.server.openai.scores.routes import score_routes
from bushel.server.page.routes import page_routes
from bushel.server.responses.routes import response_routes
from bushel.server.tokenization import tokenization_routes
from bushel.server.unversioned import Unversioned

if TYPE_CHECKING:
    from bushel.server.service.services import Services

logger = logging.getLogger(__name__)


def create_app(services: Services) -> FastAPI:
    """Starting and stopping the services is their owner's business."""
    app = FastAPI(
        title="Bushel",
        version=VERSION,
        # Their pages load scripts from elsewhere; ours has the document at /docs.
        docs_url=None,
        redoc_url=None,
        strict_content_type=False,
        redirect_slashes=False,
    )
    app.state.limits = services.options.limits
    app.state.bodies = Bodies(services.options.limits)
    app.state.batches = Batches(services)
    routers = [*_routers(services), batch_routes(services, app.state.batches)]
    for router in routers:
        app.include_router(router)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_middleware(Access, options=services.options)
    app.add_middleware(RequestIdMiddleware)
    paths = [route.path for router in routers for route in router.routes]  # type: ignore[attr-defined]
    app.add_middleware(Unversioned, paths=paths)
    app.add_middleware(RootPath, path=services.options.root_path)
    app.openapi = lambda: _openapi(app, services.options.root_path)  # type: ignore[method-assign]
    return app


def _routers(services: Services) -> list[APIRouter]:
    every = (
        chat_routes,
        completion_routes,
        message_routes,
        model_routes,
        admin_routes,
        tokenization_routes,
        response_routes,
        embedding_routes,
        score_routes,
        control_routes,
        llama_completion_routes,
        props_routes,
        template_routes,
        reply_routes,
        vector_routes,
        listing_routes,
    )
    pulls = pulls_of(services)
    return [
        *(routes(services) for routes in every),
        hub_routes(services, pulls),
        pull_routes(services, pulls),
        page_routes(),
    ]


class RequestIdMiddleware:
    """Gives every request an id, and lets nothing unexpected out but that id."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        # `ApiResponse` puts its ticket's id there.
        state = scope.setdefault("state", {})
        state["request_id"] = uuid.uuid4().hex
        started = False

        async def named(message: Message) -> None:
            nonlocal started
            if not started and message["type"] == "http.response.start":
                started = True
                headers, name = message.setdefault("headers", []), state["request_id"].encode()
                if not any(key == b"x-request-id" for key, _ in headers):
                    headers = [*headers, (b"x-request-id", name)]
                if speaks_anthropic(scope):
                    headers = [*headers, (b"request-id", name)]
                message["headers"] = headers
            await send(message)

        try:
            await self._app(scope, receive, named)
        except Exception:
            if started:  # nothing left but to cut the connection, so that it looks like no success
                raise
            logger.exception("Request %s failed.", state["request_id"])
            error = internal_error(state["request_id"])
            error.told = True
            await refusal(scope, error)(scope, receive, named)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return refusal(request.scope, error)


async def _no_route(request: Request, error: Exception) -> Response:
    """The framework's own complaints: no such route, or not with that method."""
    assert isinstance(error, HTTPException)
    messages = {
        404: ("There is nothing at this address.", "not_found"),
        405: ("This address does not support that method.", "method_not_allowed"),
    }
    message, code = messages.get(error.status_code, ("The request cannot be answered.", None))
    refused = ApiError(error.status_code, message, code=code)
    return refusal(request.scope, refused, error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """A field of the wrong type or size is a 400 that names it, as OpenAI's is."""
    assert isinstance(error, RequestValidationError)
    return refusal(request.scope, first_invalid(error.errors()))


def _openapi(app: FastAPI, root_path: str) -> dict[str, Any]:
    """FastAPI promises a 422 of its own form everywhere; here it is a 400 of ours."""
    if app.openapi_schema is None:
        servers = [{"url": root_path}] if root_path else None
        schema = get_openapi(
            title=app.title, version=app.version, routes=app.routes, servers=servers
        )
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        known = schema["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            known.pop(name, None)
        errors = schemas(ErrorBody, LlamaError, MessagesError, OllamaError)
        schema["components"]["schemas"] = dict(sorted({**known, **errors}.items()))
        app.openapi_schema = schema
    return app.openapi_schema
