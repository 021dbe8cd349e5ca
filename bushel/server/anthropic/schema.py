"""What a request of the Messages API may say, and how its reply looks.

Fields are obeyed; or hints that need nothing done (`metadata`, `cache_control`: every prompt is
kept); or known and refused by name unless they are empty. Any optional field may be null. Keys
that are not named here are ignored, and logged once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from bushel.server.anthropic.openapi_schema import Messages, System, ToolChoice, Tools
from bushel.server.api.descriptions import KIND_OF_OBJECT, about
from bushel.server.api.fields import Hint, Real, Seed, Stops, Tokens, TokensOrNone, Unsupported
from bushel.server.api.reply_fields import (
    ROLE,
    USAGE,
    AcceptedTokens,
    AddedTokens,
    CachedTokens,
    PromptTokens,
    RejectedTokens,
    ReplyId,
    ReplyModel,
    ReplyTokens,
)
from bushel.server.api.sampler_fields import SamplerFields
from bushel.server.api.shared_fields import (
    FORM,
    HELD_TO,
    IGNORED,
    REPLY_LIMIT_OR_NONE,
    SEED,
    STOPS,
    TEMPERATURE,
    CacheSalt,
    Effort,
    IgnoredHint,
    IgnoredObject,
    IgnoreEos,
    LikeliestTokens,
    Model,
    NucleusMass,
    RequestPriority,
    Stream,
    Timeout,
)
from bushel.server.api.tools import CHOSEN, OFFERED

Options = dict[str, Any]
# This API's own bound, inside that of `core.params`.
MessagesTemperature = Annotated[Real, Field(ge=0, le=2)]


class ThinkingConfig(BaseModel):
    type: Literal["enabled", "disabled", "adaptive"] = Field(
        description="Whether the model thinks, where its template has a switch; adaptive: as it "
        "does by itself."
    )
    budget_tokens: Tokens | None = Field(
        None, description="Tokens of thoughts, after which they are closed; with enabled alone."
    )
    display: Hint | None = Field(
        None,
        description="omitted: thoughts come as a signature without their text (default: shown).",
    )


class OutputFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    type: Annotated[Literal["json_schema"], KIND_OF_OBJECT]
    schema_: Annotated[Options, HELD_TO] = Field(alias="schema")


class OutputConfig(BaseModel):
    effort: Effort = None
    format: Annotated[OutputFormat | None, FORM] = None


class CountRequest(BaseModel):
    """A conversation, and what else decides what the model is told."""

    model_config = ConfigDict(extra="allow")

    model: Model = None
    messages: Messages
    system: System = None
    tools: Annotated[Tools, about(OFFERED)] = None
    tool_choice: Annotated[ToolChoice, about(CHOSEN)] = None
    thinking: ThinkingConfig | None = Field(
        None, description="Whether and how much the model thinks (default: the model's)."
    )
    output_config: OutputConfig | None = Field(None, description="The reply's effort and form.")
    output_format: OutputFormat | None = Field(
        None, description="The older name of `output_config.format`, which wins."
    )

    cache_control: IgnoredObject = None
    context_management: IgnoredObject = None
    speed: IgnoredHint = None
    # Refused in a way of its own (`errors.threads_unsupported`).
    thread: Annotated[Any, WithJsonSchema({"type": "null"})] = Field(
        None, description="Not supported: refused, so that clients send the whole conversation."
    )
    mcp_servers: Unsupported = None


class MessagesRequest(CountRequest, SamplerFields):
    max_tokens: Annotated[TokensOrNone | None, REPLY_LIMIT_OR_NONE] = None
    temperature: Annotated[MessagesTemperature | None, TEMPERATURE] = None
    top_p: NucleusMass = None
    top_k: LikeliestTokens = None
    seed: Annotated[Seed | None, SEED] = None
    stop_sequences: Annotated[Stops | None, STOPS] = None
    ignore_eos: IgnoreEos = None
    stream: Stream = None
    timeout: Timeout = None
    cache_salt: CacheSalt = None
    priority: RequestPriority = None

    metadata: IgnoredObject = None
    service_tier: IgnoredHint = None
    inference_geo: IgnoredHint = None
    safeguards: Annotated[Any, IGNORED] = None
    betas: Annotated[Any, IGNORED] = None
    compaction: Unsupported = None
    container: Unsupported = None
    prompt_logprobs: Unsupported = None
    return_token_ids: Unsupported = None

    @property
    def hides_thoughts(self) -> bool:
        return self.thinking is not None and self.thinking.display == "omitted"


class MessageUsage(BaseModel):
    """The first three add up to the prompt."""

    input_tokens: int = Field(description="Tokens of the prompt that are in neither of these two.")
    cache_creation_input_tokens: AddedTokens
    cache_read_input_tokens: CachedTokens
    output_tokens: ReplyTokens
    accepted_prediction_tokens: AcceptedTokens
    rejected_prediction_tokens: RejectedTokens


class MessageObject(BaseModel):
    id: ReplyId
    type: Annotated[Literal["message"], KIND_OF_OBJECT]
    role: Annotated[Literal["assistant"], ROLE]
    model: ReplyModel
    content: list[Options] = Field(description="Blocks of type text, thinking and tool_use.")
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] = Field(
        description="Why the reply ended: by itself, at its limit, by a stop, or to have tools "
        "called."
    )
    stop_sequence: str | None = Field(description="The text that ended it, if one did.")
    usage: Annotated[MessageUsage, USAGE]


class Count(BaseModel):
    input_tokens: PromptTokens
