"""What requests for scores may say, and how their replies look."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, PlainValidator, WithJsonSchema

from bushel.server.api.descriptions import KIND_OF_OBJECT, about, described
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Flag, whole
from bushel.server.api.openapi import object_schema
from bushel.server.api.reply_fields import USAGE, Created, Index, ReplyId, ReplyModel
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
        object_schema({"text": described("The document's text.", _TEXT_SCHEMA)}),
    ]
}
Documents = Annotated[
    list[str], PlainValidator(_documents), WithJsonSchema(_array(_DOCUMENT_SCHEMA))
]


class RerankRequest(PooledRequest):
    query: Query = Field(description="What the documents are to answer.")
    documents: Documents = Field(description="Texts, or objects with a text.")
    top_n: Annotated[int, Field(strict=True, ge=1), BeforeValidator(whole)] | None = Field(
        None, description="How many of the best documents are listed (default: all)."
    )
    return_documents: Flag | None = Field(
        None, description="Whether each result has its document's text (default: false)."
    )


class ScoreRequest(PooledRequest):
    text_1: TextOrTexts = Field(description="A text, or as many texts as `text_2` has.")
    text_2: TextOrTexts = Field(
        description="Texts to compare with that one, or each with its own of `text_1`."
    )


# -- replies -------------------------------------------------------------------------------

_SCORE = "From 0 to 1 by a cross-encoder; from -1 to 1 by an embedding model, as a cosine."


class RankedDocument(BaseModel):
    text: str = Field(description="Its text.")


class RankedResult(BaseModel):
    index: Index
    relevance_score: Annotated[float, about(_SCORE)]
    document: RankedDocument | None = Field(
        None, description="The document, if `return_documents` was asked for."
    )


class Ranking(BaseModel):
    id: ReplyId
    model: ReplyModel
    results: list[RankedResult] = Field(description="The documents, the best first.")
    usage: Annotated[PooledUsage, USAGE]


class ScoreShape(BaseModel):
    object: Annotated[Literal["score"], KIND_OF_OBJECT]
    index: Index
    score: Annotated[float, about(_SCORE)]


class ScoreList(BaseModel):
    id: ReplyId
    object: Annotated[Literal["list"], KIND_OF_OBJECT]
    created: Created
    model: ReplyModel
    data: list[ScoreShape] = Field(description="A score for each pair, in their order.")
    usage: Annotated[PooledUsage, USAGE]
