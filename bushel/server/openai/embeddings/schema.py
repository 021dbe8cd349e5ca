"""What an embedding request may say, and how its reply looks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import LARGEST_ID, Hint, Salt, Seconds, Unsupported, whole
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


def _kept(value: Any) -> int:
    number = whole(value)
    if type(number) is not int or number == 0 or not -1 <= number <= LARGEST_ID:
        raise InvalidField("", "must be a number of tokens, or -1 for as many as the model takes")
    return number


Dimensions = Annotated[
    int,
    PlainValidator(_dimensions),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": _MOST_DIMENSIONS}),
]
# Tokens that are kept of a text, as vLLM calls it.
Truncation = Annotated[
    int,
    PlainValidator(_kept),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": -1},
                {"type": "integer", "minimum": 1, "maximum": LARGEST_ID},
            ]
        }
    ),
]


class PooledRequest(BaseModel):
    """What requests for embeddings and for scores share."""

    model_config = ConfigDict(extra="allow")

    model: Hint | None = None
    user: Hint | None = None
    timeout: Seconds | None = None
    cache_salt: Salt | None = None
    stream: Unsupported = None


class EmbeddingRequest(PooledRequest):
    input: Texts
    dimensions: Dimensions | None = None
    encoding_format: Literal["float", "base64"] | None = None
    truncate_prompt_tokens: Truncation | None = None


# -- replies -------------------------------------------------------------------------------


class PooledUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class EmbeddingShape(BaseModel):
    """A list of numbers, or in base64 their bytes as little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | Annotated[str, Field(json_schema_extra={"format": "byte"})]


class EmbeddingList(BaseModel):
    object: Literal["list"]
    data: list[EmbeddingShape]
    model: str
    usage: PooledUsage
