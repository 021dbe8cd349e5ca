"""What a request of the Messages API may say, and how its reply looks.

Fields are obeyed; or hints that need nothing done (`metadata`, `cache_control`: every prompt is
kept); or known and refused by name unless they are empty. Any optional field may be null. Keys
that are not named here are ignored, and logged once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from bushel.server.anthropic.openapi_schema import Messages, System, ToolChoice, Tools
from bushel.server.api.fields import (
    Flag,
    Hint,
    Real,
    Salt,
    Seconds,
    Stops,
    Tokens,
    TokensOrNone,
    TopK,
    TopP,
    Unsupported,
)

Options = dict[str, Any]
# This API's own bound, inside that of `core.params`.
MessagesTemperature = Annotated[Real, Field(ge=0, le=2)]


class ThinkingConfig(BaseModel):
    """adaptive: as the model does by itself. display "omitted": the block, without its text."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Tokens | None = None
    display: Hint | None = None


class OutputFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    type: Literal["json_schema"]
    schema_: Options = Field(alias="schema")


class OutputConfig(BaseModel):
    effort: Hint | None = None
    format: OutputFormat | None = None


class CountRequest(BaseModel):
    """A conversation, and what else decides what the model is told."""

    model_config = ConfigDict(extra="allow")

    model: Hint | None = None
    messages: Messages
    system: System = None
    tools: Tools = None
    tool_choice: ToolChoice = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None

    cache_control: Options | None = None
    context_management: Options | None = None
    speed: Hint | None = None
    # Refused in a way of its own (`errors.threads_unsupported`).
    thread: Annotated[Any, WithJsonSchema({"type": "null"})] = None
    mcp_servers: Unsupported = None


class MessagesRequest(CountRequest):
    """max_tokens 0: nothing is said, but the prompt is kept for later ones."""

    max_tokens: TokensOrNone | None = None
    temperature: MessagesTemperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    stop_sequences: Stops | None = None
    stream: Flag | None = None
    timeout: Seconds | None = None
    cache_salt: Salt | None = None

    metadata: Options | None = None
    service_tier: Hint | None = None
    inference_geo: Hint | None = None
    safeguards: Any = None
    betas: Any = None
    compaction: Unsupported = None
    container: Unsupported = None

    @property
    def hides_thoughts(self) -> bool:
        return self.thinking is not None and self.thinking.display == "omitted"


class MessageUsage(BaseModel):
    """The first three add up to the prompt."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class MessageObject(BaseModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Options]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class Count(BaseModel):
    input_tokens: int
