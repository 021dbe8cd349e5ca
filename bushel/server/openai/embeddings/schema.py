"""What an embedding request may say, and how its reply looks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from bushel.server.api.descriptions import KIND_OF_OBJECT
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import Truncation, Unsupported, whole
from bushel.server.api.reply_fields import USAGE, Index, PromptTokens, ReplyModel
from bushel.server.api.shared_fields import (
    CacheSalt,
    IgnoredHint,
    Model,
    RequestPriority,
    Timeout,
)
from bushel.server.openai.completions.schema import Prompts

MOST_TEXTS = 2048  # of one request, as OpenAI documents it
_MOST_DIMENSIONS = 1 << 16  # more than any model has


def _texts(value: list[str | list[int]]) -> list[str | list[int]]:
    if len(value) > MOST_TEXTS:
        raise InvalidField("", f"must be at most {MOST_TEXTS} texts")
    for at, text in enumerate(value):
        if not text:
            raise InvalidField("" if len(value) == 1 else f"[{at}]", "must not be empty")
    return value


Texts = Annotated[Prompts, AfterValidator(_texts)]


def _dimensions(value: Any) -> int:
    number = whole(value)
    if type(number) is not int or not 1 <= number <= _MOST_DIMENSIONS:
        raise InvalidField("", f"must be a whole number from 1 to {_MOST_DIMENSIONS}")
    return number


Dimensions = Annotated[
    int,
    PlainValidator(_dimensions),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": _MOST_DIMENSIONS}),
]


class PooledRequest(BaseModel):
    """What requests for embeddings and for scores share."""

    model_config = ConfigDict(extra="allow")

    model: Model = None
    user: IgnoredHint = None
    timeout: Timeout = None
    cache_salt: CacheSalt = None
    priority: RequestPriority = None
    stream: Unsupported = None


class EmbeddingRequest(PooledRequest):
    input: Texts = Field(
        description=f"A text, up to {MOST_TEXTS} texts, token ids, or lists of token ids; none may "
        "be empty."
    )
    dimensions: Dimensions | None = Field(
        None,
        description="How many of a vector's first numbers are kept, at unit length again "
        "(default: all).",
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None,
        description="Vectors as lists of numbers, or as base64 of little-endian float32 "
        "(default: float).",
    )
    truncate_prompt_tokens: Truncation | None = Field(
        None,
        description="How many of a text's first tokens are kept; -1: as many as the model takes "
        "(default: what is too long is refused).",
    )


# -- replies -------------------------------------------------------------------------------


class PooledUsage(BaseModel):
    prompt_tokens: PromptTokens
    total_tokens: int = Field(description="The same: there is no reply.")


class EmbeddingShape(BaseModel):
    object: Annotated[Literal["embedding"], KIND_OF_OBJECT]
    index: Index
    embedding: list[float] | Annotated[str, Field(json_schema_extra={"format": "byte"})] = Field(
        description="The text's vector, of unit length, as `encoding_format` has it."
    )


class EmbeddingList(BaseModel):
    object: Annotated[Literal["list"], KIND_OF_OBJECT]
    data: list[EmbeddingShape] = Field(description="A vector for each text, in their order.")
    model: ReplyModel
    usage: Annotated[PooledUsage, USAGE]
