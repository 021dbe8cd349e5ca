"""What a completion request may say, and how its reply looks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, PlainValidator, WithJsonSchema

from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import (
    LARGEST_ID,
    Choices,
    Flag,
    TokensOrNone,
    TopLogprobs,
    Unsupported,
    whole,
)
from bushel.server.openai.schema import Finish, OpenAIRequest, UsageShape


def _ids(value: Any) -> list[int] | None:
    """Token ids, if it is nothing else."""
    if not isinstance(value, list) or not value:
        return None
    if float in set(map(type, value)):
        value = [whole(number) for number in value]
    good = set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= LARGEST_ID
    return value if good else None


def _prompts(value: Any) -> list[str | list[int]]:
    """A text, texts, token ids, or lists of token ids: all as a list of prompts."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise InvalidField(
            "", "must be a string, a list of strings, token ids, or lists of token ids"
        )
    if (ids := _ids(value)) is not None:
        return [ids]
    texts = isinstance(value[0], str)
    prompts: list[str | list[int]] = []
    for at, item in enumerate(value):
        prompt = (item if isinstance(item, str) else None) if texts else _ids(item)
        if prompt is None:
            kind = "a string" if texts else "a list of token ids"
            raise InvalidField(f"[{at}]", f"must be {kind}")
        prompts.append(prompt)
    return prompts


_ID_SCHEMA = {"type": "integer", "minimum": 0, "maximum": LARGEST_ID}
_IDS_SCHEMA = {"type": "array", "items": _ID_SCHEMA, "minItems": 1}
Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_prompts),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                _IDS_SCHEMA,
                {"type": "array", "items": _IDS_SCHEMA, "minItems": 1},
            ]
        }
    ),
]


class TextFormat(BaseModel):
    type: Literal["text"]


class CompletionRequest(OpenAIRequest):
    prompt: Prompts
    max_tokens: TokensOrNone | None = None
    logprobs: TopLogprobs | None = None
    echo: Flag | None = None
    best_of: Choices | None = None
    add_special_tokens: Literal[True] | None = None
    suffix: Unsupported = None
    response_format: TextFormat | None = None
    guided_choice: Unsupported = None
    guided_grammar: Unsupported = None
    guided_json: Unsupported = None
    guided_regex: Unsupported = None
    structured_outputs: Unsupported = None


# -- replies -------------------------------------------------------------------------------


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: UsageShape
