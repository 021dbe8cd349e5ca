"""What a Responses request may say: obeyed, a hint, or refused by name; and how its reply looks.

Input, tools and what may be called are outlined here and read by `conversation.py`. Replies are
described for the OpenAPI document; the writer makes the JSON itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from bushel.server.api.fields import (
    Flag,
    Hint,
    Prose,
    StreamOptions,
    TemplateOptions,
    Tokens,
    TokensOrNone,
    TopLogprobs,
    Unsupported,
)
from bushel.server.api.sampling import SamplingFields
from bushel.server.responses.openapi_schema import CHOICE, INPUT, TOOLS

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"


def _as_it_is(value: Any) -> Any:
    return value


Input = Annotated[Any, PlainValidator(_as_it_is), WithJsonSchema(INPUT)]
Tools = Annotated[Any, PlainValidator(_as_it_is), WithJsonSchema(TOOLS)]
Choice = Annotated[Any, PlainValidator(_as_it_is), WithJsonSchema(CHOICE)]


class PlainText(BaseModel):
    type: Literal["text"]


class JsonObject(BaseModel):
    type: Literal["json_object"]


class JsonSchema(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: Literal["json_schema"]
    name: Hint | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: Flag | None = None


class TextOptions(BaseModel):
    format: Annotated[PlainText | JsonObject | JsonSchema, Field(discriminator="type")] | None = (
        None
    )
    verbosity: Hint | None = None  # a hint


class ReasoningOptions(BaseModel):
    """summary: thoughts are told as a summary, which is what many clients show."""

    effort: Hint | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None  # its older name


class ResponsesRequest(SamplingFields):
    # To go on from another response it may be left out, which says little by itself.
    model_config = ConfigDict(extra="allow", json_schema_extra={"required": ["input"]})

    model: Hint | None = None
    input: Input = None
    instructions: Prose | None = None
    previous_response_id: Hint | None = None
    store: Flag | None = None
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    include: Annotated[list[Hint], Field(max_length=64, fail_fast=True)] | None = None

    tools: Tools = None
    tool_choice: Choice = None
    parallel_tool_calls: Flag | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    chat_template_kwargs: TemplateOptions | None = None

    max_output_tokens: Tokens | None = None
    top_logprobs: TopLogprobs | None = None

    user: Hint | None = None
    metadata: dict[str, Any] | None = None
    max_tool_calls: TokensOrNone | None = None  # of tools that the server itself would run
    service_tier: Hint | None = None
    prompt_cache_key: Hint | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: Hint | None = None
    safety_identifier: Hint | None = None
    client_metadata: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None

    background: Unsupported = None
    conversation: Unsupported = None
    moderation: Unsupported = None
    n: Unsupported = None
    prompt: Unsupported = None
    response_format: Unsupported = None

    @property
    def kept(self) -> bool:
        return self.store is not False

    @property
    def summarised(self) -> bool:
        asked = self.reasoning
        return asked is not None and (asked.summary or asked.generate_summary) is not None

    @property
    def encrypted(self) -> bool:
        return ENCRYPTED in (self.include or ())

    @property
    def logprobs(self) -> int | None:
        """How many of the likeliest tokens come with each one; None: nothing is told of them."""
        wanted = self.top_logprobs or LOGPROBS in (self.include or ())
        return (self.top_logprobs or 0) if wanted else None

    def as_dict(self) -> dict[str, Any]:
        """As the client wrote it; what is inside of input and tools is shared, not copied."""
        fields = dict(vars(self))
        for name in ("text", "reasoning"):
            part: BaseModel | None = fields[name]
            fields[name] = part and part.model_dump(by_alias=True, exclude_unset=True)
        return fields


# -- replies -------------------------------------------------------------------------------


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class ResponseObject(BaseModel):
    """Of a reply that has ended; `error` is that of a stream."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["completed", "incomplete"]
    error: None
    incomplete_details: IncompleteDetails | None
    output: list[dict[str, Any]]
    usage: ResponseUsage
    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, Any]
    model: str
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float | None
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float | None
    truncation: str
    user: str | None


class Deleted(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class ItemList(BaseModel):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
