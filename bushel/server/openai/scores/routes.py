"""`POST /v1/rerank`, as Cohere, Jina and vLLM have it, and `POST /v1/score`, as vLLM has it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request, Response

from bushel.core.wire import Encode
from bushel.server.api.errors import InvalidField
from bushel.server.api.openapi import documented
from bushel.server.api.pooled_response import PooledResponse, pooled_job
from bushel.server.api.unread_fields import note_unread
from bushel.server.callers import owner_of
from bushel.server.counting import CountJob
from bushel.server.http.request_body import JsonRoute
from bushel.server.openai.embeddings.schema import PooledRequest
from bushel.server.openai.scores.pairs import Pair, PairScores
from bushel.server.openai.scores.schema import Ranking, RerankRequest, ScoreList, ScoreRequest
from bushel.server.service.job import GenerationJob

if TYPE_CHECKING:
    from bushel.server.service.service import Service
    from bushel.server.service.services import Services

_encode = msgspec.json.encode


def score_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    @routes.post(
        "/v1/rerank",
        response_model=Ranking,
        responses=documented(body=True, work=True),
        summary="Documents by how well they answer a query",
    )
    async def rerank(body: RerankRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        model = service.names.resolve(body.model)

        def write(scores: list[float], id: str, created: int, tokens: int) -> bytes:
            results = _ranked(body, scores)
            return _encode({"id": id, "model": model, "results": results, "usage": _usage(tokens)})

        pairs = [(body.query, document) for document in body.documents]
        scores = PairScores(pairs, "documents", write)
        return _response(service, request, body, scores, model, "rerank")

    @routes.post(
        "/v1/score",
        response_model=ScoreList,
        responses=documented(body=True, work=True),
        summary="How well texts go with each other",
    )
    async def score(body: ScoreRequest, request: Request) -> Response:
        note_unread(body)
        service = services.of(body.model)
        model = service.names.resolve(body.model)

        def write(scores: list[float], id: str, created: int, tokens: int) -> bytes:
            data = [
                {"object": "score", "index": at, "score": value} for at, value in enumerate(scores)
            ]
            head = {"id": id, "object": "list", "created": created, "model": model}
            return _encode({**head, "data": data, "usage": _usage(tokens)})

        scores = PairScores(_paired(body), "text_2", write)
        return _response(service, request, body, scores, model, "score")

    return routes


def _response(
    service: Service,
    request: Request,
    body: PooledRequest,
    scores: PairScores,
    model: str,
    api: str,
) -> Response:
    def plan() -> tuple[list[GenerationJob], PairScores]:
        info = service.model_info
        prompts = scores.prompts(crossed=info is not None and info.task == "score")
        jobs = [
            pooled_job(service, request, body, prompt, model=model, api=api) for prompt in prompts
        ]
        return jobs, scores

    owner = owner_of(service.options, request.headers)
    return PooledResponse(service, plan, CountJob(Encode(uuid.uuid4().hex, "a"), api, model, owner))


def _paired(body: ScoreRequest) -> list[Pair]:
    """One with each, or each with its own."""
    one, two = body.text_1, body.text_2
    if len(one) == 1:
        one = one * len(two)
    if len(one) != len(two):
        raise InvalidField("text_2", "must be as many texts as text_1, unless that is one")
    return list(zip(one, two, strict=True))


def _ranked(body: RerankRequest, scores: list[float]) -> list[dict[str, Any]]:
    """The best first; of equals, the first."""
    order = sorted(range(len(scores)), key=lambda at: -scores[at])[: body.top_n]
    results: list[dict[str, Any]] = []
    for at in order:
        result: dict[str, Any] = {"index": at, "relevance_score": scores[at]}
        if body.return_documents:
            result["document"] = {"text": body.documents[at]}
        results.append(result)
    return results


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}
