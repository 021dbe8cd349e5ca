"""`POST /v1/embeddings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from bushel.server.api.openapi import documented
from bushel.server.api.pooled_response import PooledResponse, pooled_job
from bushel.server.api.unread_fields import note_unread
from bushel.server.http.request_body import JsonRoute
from bushel.server.openai.embeddings.schema import EmbeddingList, EmbeddingRequest
from bushel.server.openai.embeddings.writer import EmbeddingWriter

if TYPE_CHECKING:
    from bushel.server.service.services import Services


def embedding_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/v1/embeddings",
        response_model=EmbeddingList,
        responses=documented(body=True, work=True),
        summary="A vector for each text",
    )
    async def embeddings(body: EmbeddingRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        model = service.names.resolve(body.model)
        jobs = [
            pooled_job(
                service,
                request,
                body,
                {
                    "prompt" if isinstance(text, str) else "prompt_token_ids": text,
                    "truncate": body.truncate_prompt_tokens,
                    "field": "input" if len(body.input) == 1 else f"input[{at}]",
                },
                model=model,
                api="embeddings",
            )
            for at, text in enumerate(body.input)
        ]
        writer = EmbeddingWriter(
            model, len(jobs), body.dimensions, as_base64=body.encoding_format == "base64"
        )
        return PooledResponse(service, lambda: (jobs, writer))

    return routes
