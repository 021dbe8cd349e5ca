"""`POST /api/embed`, and `POST /api/embeddings`, its older form for one text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from bushel.core.awake_clock import awake
from bushel.core.embedding import unit
from bushel.server.api.descriptions import about
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Flag, Tokens
from bushel.server.api.pooled_response import PooledResponse, pooled_job
from bushel.server.api.reply_fields import PromptTokens, ReplyModel
from bushel.server.api.shared_fields import Model
from bushel.server.api.unread_fields import note_unread
from bushel.server.errors import reply_too_large
from bushel.server.http.request_body import JsonRoute
from bushel.server.ollama.names import served_as
from bushel.server.ollama.routes import ERRORS
from bushel.server.ollama.schema import KEEP_ALIVE, KeepAlive, Options
from bushel.server.ollama.writer import nanoseconds

if TYPE_CHECKING:
    from bushel.server.service.services import Services

MOST_TEXTS = 2048
_MOST_BYTES = 64 << 20  # of a reply
_DIGITS = 9  # float32 has as many behind the point, for one below one
_WHOLE_CONTEXT = -1  # what `chat.embedding_prompt` keeps of a text that is longer


def _texts(value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not 1 <= len(texts) <= MOST_TEXTS:
        raise InvalidField("", f"must be a text, or a list of 1 to {MOST_TEXTS} texts")
    for at, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            raise InvalidField("" if text is value else f"[{at}]", "must be a text, and not empty")
    return texts


_TEXT = {"type": "string", "minLength": 1}
Texts = Annotated[
    list[str],
    PlainValidator(_texts),
    WithJsonSchema(
        {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MOST_TEXTS}]}
    ),
]


class _EmbeddingBody(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: Model = None
    options: Options = None
    keep_alive: Annotated[KeepAlive | None, KEEP_ALIVE] = None

    @property
    def stream(self) -> bool:
        return False

    @property
    def timeout(self) -> float | None:
        return self.options.timeout if self.options else None

    @property
    def cache_salt(self) -> str | None:
        return self.options.cache_salt if self.options else None

    @property
    def priority(self) -> int | None:
        return self.options.priority if self.options else None


class OllamaEmbedRequest(_EmbeddingBody):
    input: Texts = Field(description=f"A text, or up to {MOST_TEXTS} texts.")
    truncate: Flag | None = Field(
        None,
        description="Whether a text that is too long loses its end; if not, it is refused "
        "(default: true).",
    )
    dimensions: Tokens | None = Field(
        None,
        description="How many of a vector's first numbers are kept, at unit length again "
        "(default: all).",
    )


class OllamaEmbeddingRequest(_EmbeddingBody):
    prompt: str = Field(min_length=1, description="A text.")


Vector = list[float]
_UNIT = "of unit length"


class OllamaEmbedReply(BaseModel):
    model: ReplyModel
    embeddings: list[Vector] = Field(description=f"A vector {_UNIT} for each text.")
    total_duration: int = Field(description="Nanoseconds from start to end.")
    load_duration: int = Field(description="Always 0: it is part of the rest.")
    prompt_eval_count: PromptTokens


class OllamaEmbeddingReply(BaseModel):
    embedding: Annotated[Vector, about(f"The text's vector, {_UNIT}.")]


class VectorWriter:
    """Encodes each as it comes: all at once would keep everyone waiting. model: None in the older
    form, which has one vector and nothing else.
    """

    def __init__(self, model: str | None, count: int, dimensions: int | None = None):
        self._model = model
        self._dimensions = dimensions
        self._vectors = [msgspec.Raw()] * count
        self._bytes = 0
        self._began = awake()

    def take(self, index: int, values: Sequence[float]) -> None:
        if self._dimensions is not None and self._dimensions > len(values):
            raise InvalidField("dimensions", f"must be at most {len(values)} with this model")
        vector = [round(value, _DIGITS) for value in unit(values, self._dimensions)]
        self._vectors[index] = encoded = msgspec.Raw(msgspec.json.encode(vector))
        self._bytes += len(encoded)
        if self._bytes > _MOST_BYTES:
            raise reply_too_large(_MOST_BYTES)

    def whole(self, id: str, created: int, prompt_tokens: int) -> bytes:
        if self._model is None:
            return msgspec.json.encode({"embedding": self._vectors[0]})
        reply = {
            "model": self._model,
            "embeddings": self._vectors,
            "total_duration": nanoseconds(awake() - self._began),
            "load_duration": 0,
            "prompt_eval_count": prompt_tokens,
        }
        return msgspec.json.encode(reply)


def vector_routes(services: Services) -> APIRouter:
    routes = APIRouter(route_class=JsonRoute)

    def pooled(
        request: Request,
        body: _EmbeddingBody,
        texts: Sequence[str],
        field: str,
        *,
        truncate: bool = True,
        dimensions: int | None = None,
        older: bool = False,
    ) -> Response:
        note_unread(body)
        service, model = served_as(services, body.model)
        jobs = [
            pooled_job(
                service,
                request,
                body,
                {
                    "prompt": text,
                    "truncate": _WHOLE_CONTEXT if truncate else None,
                    "field": field if len(texts) == 1 else f"{field}[{at}]",
                },
                model=model,
                api="ollama_embed",
            )
            for at, text in enumerate(texts)
        ]
        writer = VectorWriter(None if older else model, len(jobs), dimensions)
        return PooledResponse(service, lambda: (jobs, writer))

    @routes.post(
        "/api/embed",
        response_model=OllamaEmbedReply,
        responses=ERRORS,
        summary="A vector for each text, as Ollama's clients ask for it",
    )
    async def embed(body: OllamaEmbedRequest, request: Request) -> Response:
        return pooled(
            request,
            body,
            body.input,
            "input",
            truncate=body.truncate is not False,
            dimensions=body.dimensions,
        )

    @routes.post(
        "/api/embeddings",
        response_model=OllamaEmbeddingReply,
        responses=ERRORS,
        summary="A text's vector, in the older form of /api/embed",
    )
    async def embeddings(body: OllamaEmbeddingRequest, request: Request) -> Response:
        return pooled(request, body, [body.prompt], "prompt", older=True)

    return routes
