"""What a completion request may say, and how its reply looks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema

from bushel.server.api.descriptions import KIND_OF_OBJECT
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import (
    LARGEST_ID,
    Choices,
    Flag,
    LimitOrNone,
    Prose,
    TopLogprobs,
    whole,
)
from bushel.server.api.reply_fields import USAGE, Created, ReplyId, ReplyModel
from bushel.server.api.shared_fields import TOP_LOGPROBS
from bushel.server.openai.schema import (
    Finish,
    MatchedStop,
    OpenAIRequest,
    PromptLogprobs,
    PromptTokenIds,
    ReplyTokenIds,
    StopReason,
    UsageShape,
)
from bushel.server.openai.structured_output import StructuredOutputFields


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


class CompletionRequest(OpenAIRequest, StructuredOutputFields):
    prompt: Prompts = Field(
        description="A text, texts, token ids, or lists of token ids: each is a prompt of its own."
    )
    max_tokens: LimitOrNone | None = Field(
        None,
        description="Tokens of each reply, at most; 0: nothing is said, but the prompt may be "
        "echoed and is kept; -1: until the context ends (default: the server's, the model's, or "
        "16).",
    )
    logprobs: TopLogprobs | None = Field(
        None, description=f"{TOP_LOGPROBS} (default: none, and no log-probabilities)."
    )
    echo: Flag | None = Field(
        None,
        description="Whether the prompt comes before the reply, with `logprobs` its tokens too "
        "(default: false).",
    )
    best_of: Choices | None = Field(
        None, description="Must equal `n`, since no reply is dropped; other values are refused."
    )
    add_special_tokens: Literal[True] | None = Field(
        None, description="Always true: texts begin as the tokenizer begins them. False is refused."
    )
    suffix: Prose | None = Field(
        None,
        description="The text behind the reply, which fills in the middle; only of models whose "
        "tokenizer has tokens for it, and without `echo`.",
    )


# -- replies -------------------------------------------------------------------------------


class CompletionLogprobs(BaseModel):
    tokens: list[str] = Field(
        description="Each token's text; of half a character, `bytes:` and its bytes."
    )
    token_logprobs: list[float | None] = Field(
        description="Their log-probabilities; null for the first one of an echoed prompt."
    )
    top_logprobs: list[dict[str, float] | None] = Field(
        description="The likeliest tokens in the place of each, and the token itself."
    )
    text_offset: list[int] = Field(
        description="Where each begins in the text, in characters, an echoed prompt included."
    )


class CompletionChoice(BaseModel):
    index: int = Field(description="Its number, counted prompt by prompt, from 0.")
    text: str = Field(description="The reply, behind its prompt if `echo` was asked for.")
    logprobs: CompletionLogprobs | None = Field(
        description="Its tokens, in lists of one length, if `logprobs` was asked for."
    )
    finish_reason: Finish
    stop_reason: StopReason
    matched_stop: MatchedStop
    prompt_token_ids: PromptTokenIds = None
    token_ids: ReplyTokenIds = None
    prompt_logprobs: PromptLogprobs = None


class Completion(BaseModel):
    id: ReplyId
    object: Annotated[Literal["text_completion"], KIND_OF_OBJECT]
    created: Created
    model: ReplyModel
    choices: list[CompletionChoice] = Field(
        description="As many replies to each prompt as `n` asked for."
    )
    usage: Annotated[UsageShape, USAGE]
