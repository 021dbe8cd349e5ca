"""What a Responses request may say: obeyed, a hint, or refused by name; and how its reply looks.

Input, tools and what may be called are outlined here and read by `conversation.py`. Replies are
described for the OpenAPI document; the writer makes the JSON itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from bushel.server.api.descriptions import KIND_OF_OBJECT, about
from bushel.server.api.fields import (
    Flag,
    Hint,
    Limit,
    Prose,
    TokensOrNone,
    TopLogprobs,
    Unsupported,
)
from bushel.server.api.reply_fields import (
    FIRST_ID,
    LAST_ID,
    USAGE,
    AcceptedTokens,
    AddedTokens,
    CachedTokens,
    Created,
    PromptTokens,
    RejectedTokens,
    ReplyId,
    ReplyModel,
    ReplyTokens,
    TotalTokens,
)
from bushel.server.api.sampling import SamplingFields
from bushel.server.api.shared_fields import (
    FORM,
    HELD_TO,
    REPEATED,
    REPLY_LIMIT,
    SCHEMA_NAME,
    SCHEMA_STRICT,
    TOP_LOGPROBS,
    Effort,
    IgnoredHint,
    IgnoredObject,
    Model,
    RepeatedHint,
    SeveralCalls,
    Stream,
    TemplateVariables,
)
from bushel.server.api.tools import CHOSEN, OFFERED
from bushel.server.responses.openapi_schema import CHOICE, INPUT, TOOLS

LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"


def _as_it_is(value: Any) -> Any:
    return value


Input = Annotated[Any, PlainValidator(_as_it_is), WithJsonSchema(INPUT)]
Tools = Annotated[Any, PlainValidator(_as_it_is), WithJsonSchema(TOOLS)]
Choice = Annotated[Any, PlainValidator(_as_it_is), WithJsonSchema(CHOICE)]


class PlainText(BaseModel):
    type: Annotated[Literal["text"], KIND_OF_OBJECT]


class JsonObject(BaseModel):
    type: Annotated[Literal["json_object"], KIND_OF_OBJECT]


class JsonSchema(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: Annotated[Literal["json_schema"], KIND_OF_OBJECT]
    name: Annotated[Hint | None, SCHEMA_NAME] = None
    schema_: Annotated[dict[str, Any], HELD_TO] = Field(alias="schema")
    strict: Annotated[Flag | None, SCHEMA_STRICT] = None


class TextOptions(BaseModel):
    format: Annotated[
        Annotated[PlainText | JsonObject | JsonSchema, Field(discriminator="type")] | None, FORM
    ] = None
    verbosity: RepeatedHint = None


class ReasoningOptions(BaseModel):
    effort: Effort = None
    summary: Literal["auto", "concise", "detailed"] | None = Field(
        None,
        description="Any of them: thoughts come, whole, as a summary, which is what many clients "
        "show (default: as content).",
    )
    generate_summary: Literal["auto", "concise", "detailed"] | None = Field(
        None, description="The older name of `summary`."
    )


# To go on from another response it may be left out.
_NEEDS_INPUT: dict[str, Any] = {
    "anyOf": [{"required": ["input"]}, {"required": ["previous_response_id"]}]
}


class ResponsesRequest(SamplingFields):
    model_config = ConfigDict(extra="allow", json_schema_extra=_NEEDS_INPUT)

    model: Model = None
    input: Input = Field(
        None,
        description="A text of the user's, or items; may be left out with `previous_response_id`.",
    )
    instructions: Prose | None = Field(
        None, description="What the model is told before the conversation, in this turn alone."
    )
    previous_response_id: Hint | None = Field(
        None, description="A response that is kept, with whose conversation this one goes on."
    )
    store: Flag | None = Field(
        None,
        description="Whether the response is kept for later ones, in memory for a while "
        "(default: true).",
    )
    stream: Stream = None
    stream_options: IgnoredObject = None
    include: Annotated[list[Hint], Field(max_length=64, fail_fast=True)] | None = Field(
        None,
        description=f"{LOGPROBS}: log-probabilities of the text; {ENCRYPTED}: thoughts as a "
        "string to send back. Others are ignored.",
    )

    tools: Annotated[Tools, about(OFFERED)] = None
    tool_choice: Annotated[Choice, about(CHOSEN)] = None
    parallel_tool_calls: SeveralCalls = None
    text: TextOptions | None = Field(None, description="How the text is to look.")
    reasoning: ReasoningOptions | None = Field(
        None, description="How much the model thinks, and how its thoughts are told."
    )
    chat_template_kwargs: TemplateVariables = None

    max_output_tokens: Annotated[Limit | None, REPLY_LIMIT] = None
    top_logprobs: TopLogprobs | None = Field(
        None, description=f"{TOP_LOGPROBS}; any asks for log-probabilities, too (default: 0)."
    )

    user: RepeatedHint = None
    metadata: Annotated[dict[str, Any] | None, REPEATED] = None
    # Of tools that the server itself would run.
    max_tool_calls: Annotated[TokensOrNone | None, REPEATED] = None
    service_tier: IgnoredHint = None
    prompt_cache_key: RepeatedHint = None
    prompt_cache_options: IgnoredObject = None
    prompt_cache_retention: IgnoredHint = None
    safety_identifier: RepeatedHint = None
    client_metadata: IgnoredObject = None
    truncation: Literal["auto", "disabled"] | None = Field(
        None, description="A hint: a conversation that is too long is always refused."
    )

    background: Unsupported = None
    conversation: Unsupported = None
    moderation: Unsupported = None
    n: Unsupported = None
    prompt: Unsupported = None
    prompt_logprobs: Unsupported = None
    response_format: Unsupported = None
    return_token_ids: Unsupported = None

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

AS_ASKED = about("As the request has it, or what it means to say nothing.")


class InputDetails(BaseModel):
    cached_tokens: CachedTokens
    cache_write_tokens: AddedTokens


class OutputDetails(BaseModel):
    accepted_prediction_tokens: AcceptedTokens
    rejected_prediction_tokens: RejectedTokens
    reasoning_tokens: int = Field(description="Tokens of thoughts, by their share of the text.")


class ResponseUsage(BaseModel):
    input_tokens: PromptTokens
    input_tokens_details: InputDetails = Field(description="More about the prompt.")
    output_tokens: ReplyTokens
    output_tokens_details: OutputDetails = Field(description="More about the reply.")
    total_tokens: TotalTokens


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"] = Field(description="What cut it off.")


class ResponseObject(BaseModel):
    """Of a reply that has ended; `error` is that of a stream."""

    id: ReplyId
    object: Annotated[Literal["response"], KIND_OF_OBJECT]
    created_at: Created
    completed_at: int | None = Field(
        description="When it was complete, in seconds since 1970; null if it was cut off."
    )
    status: Literal["completed", "incomplete"] = Field(
        description="Whether the reply ended by itself or at its limit."
    )
    error: None = Field(description="Always null: what fails is an HTTP error.")
    incomplete_details: IncompleteDetails | None = Field(description="Why it is incomplete.")
    output: list[dict[str, Any]] = Field(
        description="Items of type reasoning, message, function_call and custom_tool_call."
    )
    usage: Annotated[ResponseUsage, USAGE]
    background: Literal[False] = Field(description="Always false: there are none.")
    instructions: Annotated[str | None, AS_ASKED]
    max_output_tokens: Annotated[int | None, AS_ASKED]
    max_tool_calls: Annotated[int | None, AS_ASKED]
    metadata: Annotated[dict[str, Any], AS_ASKED]
    model: ReplyModel
    parallel_tool_calls: Annotated[bool, AS_ASKED]
    previous_response_id: Annotated[str | None, AS_ASKED]
    prompt_cache_key: Annotated[str | None, AS_ASKED]
    reasoning: Annotated[dict[str, Any], AS_ASKED]
    safety_identifier: Annotated[str | None, AS_ASKED]
    service_tier: str = Field(description="Always default.")
    store: Annotated[bool, AS_ASKED]
    temperature: Annotated[float | None, AS_ASKED]
    text: Annotated[dict[str, Any], AS_ASKED]
    tool_choice: Annotated[str | dict[str, Any], AS_ASKED]
    tools: Annotated[list[dict[str, Any]], AS_ASKED]
    top_logprobs: Annotated[int, AS_ASKED]
    top_p: Annotated[float | None, AS_ASKED]
    truncation: str = Field(description="Always disabled.")
    user: Annotated[str | None, AS_ASKED]


class Deleted(BaseModel):
    id: str = Field(description="The response's id.")
    object: Annotated[Literal["response"], KIND_OF_OBJECT] = "response"
    deleted: Annotated[Literal[True], about("Always true; others are a 404.")] = True


class ItemList(BaseModel):
    object: Annotated[Literal["list"], KIND_OF_OBJECT] = "list"
    data: list[dict[str, Any]] = Field(description="Items, those of earlier turns included.")
    first_id: Annotated[str | None, FIRST_ID]
    last_id: Annotated[str | None, LAST_ID]
    has_more: bool = Field(description="Whether there are more after these.")


class InputTokens(BaseModel):
    object: Annotated[Literal["response.input_tokens"], KIND_OF_OBJECT] = "response.input_tokens"
    input_tokens: PromptTokens
