"""What requests for scores may say, and how their replies look."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema

from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Flag
from bushel.server.openai.embeddings.schema import MOST_TEXTS, PooledRequest, PooledUsage

_TEXT_SCHEMA: dict[str, Any] = {"type": "string", "minLength": 1}


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidField(where, "must be a string that is not empty")
    return value


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_TEXTS:
        raise InvalidField("", f"must be a list of 1 to {MOST_TEXTS} texts")
    return value


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [_text("", value)]
    return [_text(f"[{at}]", text) for at, text in enumerate(_listed(value))]


def _documents(value: Any) -> list[str]:
    documents = []
    for at, document in enumerate(_listed(value)):
        if isinstance(document, dict):
            documents.append(_text(f"[{at}].text", document.get("text")))
        else:
            documents.append(_text(f"[{at}]", document))
    return documents


def _array(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": MOST_TEXTS}


Query = Annotated[str, PlainValidator(lambda value: _text("", value)), WithJsonSchema(_TEXT_SCHEMA)]
TextOrTexts = Annotated[
    list[str],
    PlainValidator(_texts),
    WithJsonSchema({"anyOf": [_TEXT_SCHEMA, _array(_TEXT_SCHEMA)]}),
]
_DOCUMENT_SCHEMA = {
    "anyOf": [
        _TEXT_SCHEMA,
        {"type": "object", "properties": {"text": _TEXT_SCHEMA}, "required": ["text"]},
    ]
}
Documents = Annotated[
    list[str], PlainValidator(_documents), WithJsonSchema(_array(_DOCUMENT_SCHEMA))
]


class RerankRequest(PooledRequest):
    query: Query
    documents: Documents
    top_n: Annotated[int, Field(strict=True, ge=1)] | None = None
    return_documents: Flag | None = None


class ScoreRequest(PooledRequest):
    text_1: TextOrTexts
    text_2: TextOrTexts


# -- replies -------------------------------------------------------------------------------


class RankedDocument(BaseModel):
    text: str


class RankedResult(BaseModel):
    index: int
    relevance_score: float
    document: RankedDocument | None = None


class Ranking(BaseModel):
    id: str
    model: str
    results: list[RankedResult]
    usage: PooledUsage


class ScoreShape(BaseModel):
    object: Literal["score"]
    index: int
    score: float


class ScoreList(BaseModel):
    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[ScoreShape]
    usage: PooledUsage
