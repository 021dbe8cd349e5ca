"""What a chat or a completion request may say.

Three kinds of fields: those that are obeyed; hints that need nothing done (`user`, `store`); and
those that are known but cannot be obeyed, which are refused by name unless they are empty. Any
optional field may be null. Keys that are not named here are ignored, and logged once.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bushel.server.openai.fields import (
    Choices,
    Flag,
    Hint,
    Prompts,
    Prose,
    TemplateOptions,
    Tokens,
    TokensOrNone,
    TopLogprobs,
    Unsupported,
)
from bushel.server.openai.messages import Messages
from bushel.server.openai.sampling import SamplingFields
from bushel.server.openai.tools import ResponseFormat, StructuredOutputs, ToolChoice, Tools


class StreamOptions(BaseModel):
    include_usage: Flag | None = None
    continuous_usage_stats: Flag | None = None
    include_obfuscation: Flag | None = None  # a hint


class TextFormat(BaseModel):
    type: Literal["text"]


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


class Sampling(SamplingFields):
    """What chat and completions share."""

    model: Hint | None = None
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    n: Choices | None = None
    skip_special_tokens: Literal[True] | None = None

    user: Hint | None = None
    metadata: dict[str, Any] | None = None
    store: Flag | None = None
    service_tier: Literal["auto", "default"] | None = None
    prompt_cache_key: Hint | None = None
    prompt_cache_options: dict[str, Any] | None = None
    prompt_cache_retention: Hint | None = None
    safety_identifier: Hint | None = None

    allowed_token_ids: Unsupported = None
    bad_words: Unsupported = None
    include_stop_str_in_output: Unsupported = None
    prompt_logprobs: Unsupported = None
    truncate_prompt_tokens: Unsupported = None
    use_beam_search: Unsupported = None

    @property
    def choices(self) -> int:
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def wants_running_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


_NEEDS_LOGPROBS = {
    "anyOf": [
        {"properties": {"top_logprobs": {"enum": [None, 0]}}},
        {"properties": {"logprobs": {"const": True}}, "required": ["logprobs"]},
    ]
}


class ChatRequest(Sampling):
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


class CompletionRequest(Sampling):
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
