"""What a chat request may say, and how its reply looks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bushel.chat.response_format import shape_for
from bushel.core.conversation import Shape
from bushel.server.api.errors import InvalidField
from bushel.server.api.fields import (
    Flag,
    Hint,
    Prose,
    TemplateOptions,
    Tokens,
    TokensOrNone,
    TopLogprobs,
    Unsupported,
)
from bushel.server.openai.chat.messages import Messages
from bushel.server.openai.chat.tools import ToolChoice, Tools
from bushel.server.openai.schema import Finish, OpenAIRequest, UsageShape


class JsonSchemaFormat(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """`json_schema` is obeyed whether it says `strict` or not."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"type": {"enum": ["text", "json_object"]}}},
                {
                    "properties": {"json_schema": {"type": "object"}},
                    "required": ["json_schema"],
                },
            ]
        }
    )

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _complete(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise InvalidField(".json_schema", "is missing")
        return self

    @property
    def shape(self) -> Shape | None:
        return shape_for(self.type, self.json_schema.schema_ if self.json_schema else None)


class StructuredOutputs(BaseModel):
    """As vLLM's clients ask for it."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: Annotated[list[str], Field(max_length=1024, fail_fast=True)] | None = None
    grammar: str | None = None


class Reasoning(BaseModel):
    """As OpenRouter's clients ask for it."""

    effort: Hint | None = None
    max_tokens: TokensOrNone | None = None
    enabled: Flag | None = None
    exclude: Literal[False] | None = None


class ThinkingSwitch(BaseModel):
    """As clients of several hosted models ask for it."""

    type: Literal["enabled", "disabled", "auto", "adaptive"]
    budget_tokens: TokensOrNone | None = None


Alternatives = Annotated[list[Prose], Field(min_length=1, max_length=1024, fail_fast=True)]


_NEEDS_LOGPROBS = {
    "anyOf": [
        {"properties": {"top_logprobs": {"enum": [None, 0]}}},
        {"properties": {"logprobs": {"const": True}}, "required": ["logprobs"]},
    ]
}


class ChatRequest(OpenAIRequest):
    model_config = ConfigDict(json_schema_extra=_NEEDS_LOGPROBS)  # type: ignore[typeddict-item]

    messages: Messages
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    logprobs: Flag | None = None
    top_logprobs: TopLogprobs | None = None
    chat_template_kwargs: TemplateOptions | None = None
    add_generation_prompt: Flag | None = None
    continue_final_message: Flag | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Flag | None = None
    response_format: ResponseFormat | None = None
    guided_choice: Alternatives | None = None
    guided_grammar: Prose | None = None
    guided_json: dict[str, Any] | Prose | None = None
    guided_regex: Prose | None = None
    structured_outputs: StructuredOutputs | None = None

    # Obeyed by models that can: several spellings of the same wish.
    reasoning_effort: Hint | None = None
    reasoning: Reasoning | None = None
    thinking: ThinkingSwitch | None = None
    enable_thinking: Flag | None = None
    thinking_budget: TokensOrNone | None = None

    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True)] | None = None
    verbosity: Literal["medium"] | None = None
    audio: Unsupported = None
    chat_template: Unsupported = None
    documents: Unsupported = None
    echo: Unsupported = None
    function_call: Unsupported = None
    functions: Unsupported = None
    moderation: Unsupported = None
    prediction: Unsupported = None
    web_search_options: Unsupported = None

    @property
    def limit(self) -> int | None:
        """The newer name wins where both are sent."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


# -- replies -------------------------------------------------------------------------------


class TopLogprob(BaseModel):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprobShape(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(BaseModel):
    content: list[TokenLogprobShape]
    refusal: None


class CalledFunction(BaseModel):
    name: str
    arguments: str


class ToolCallShape(BaseModel):
    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCallShape] | None = None


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageShape
