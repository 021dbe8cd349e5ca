"""What requests for chat and for completions share, and their replies.

Three kinds of fields: those that are obeyed; hints that need nothing done (`user`, `store`); and
those that are known but cannot be obeyed, which are refused by name unless they are empty. Any
optional field may be null. Of keys that are not named here, see `api.unread_fields`.

Replies are described for the OpenAPI document. Writers make the JSON themselves, for speed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from bushel.server.api.fields import Choices, Flag, Truncation, Unsupported
from bushel.server.api.reply_fields import (
    CachedTokens,
    PromptTokens,
    ReplyTokens,
    TotalTokens,
)
from bushel.server.api.sampling import SamplingFields
from bushel.server.api.shared_fields import (
    IGNORED,
    IgnoredHint,
    IgnoredObject,
    Model,
    Stream,
    StreamedUsage,
)

Finish = Annotated[
    Literal["stop", "length", "tool_calls", "function_call"],
    Field(
        description="Why the reply ended: by itself or by a stop, at its limit, or to have tools "
        "called; function_call is the older name of tool_calls."
    ),
]
_STOPPED = "The text or the token id that ended the reply, of those that the request named"
StopReason = Annotated[str | int | None, Field(description=f"{_STOPPED}; null if none did.")]
MatchedStop = Annotated[str | int | None, Field(description="The same, as SGLang calls it.")]
STREAMED = "The reply; with `stream`, server-sent events of its chunks and [DONE]."


class OpenAIRequest(SamplingFields):
    """What chat and completions share."""

    model: Model = None
    stream: Stream = None
    stream_options: StreamedUsage = None
    n: Choices | None = Field(
        None, description="Choices for each prompt, which share its computation (default: 1)."
    )
    truncate_prompt_tokens: Truncation | None = Field(
        None,
        description="Keep so many tokens at the end of a longer prompt of text; -1: as many as "
        "leave room for the reply (default: a prompt that is too long is refused).",
    )
    skip_special_tokens: Literal[True] | None = Field(
        None, description="Special tokens are never part of the text: false is refused."
    )

    user: IgnoredHint = None
    metadata: IgnoredObject = None
    store: Annotated[Flag | None, IGNORED] = None
    service_tier: IgnoredHint = None
    prompt_cache_key: IgnoredHint = None
    prompt_cache_options: IgnoredObject = None
    prompt_cache_retention: IgnoredHint = None
    safety_identifier: IgnoredHint = None

    allowed_token_ids: Unsupported = None
    bad_words: Unsupported = None
    include_stop_str_in_output: Unsupported = None
    prompt_logprobs: Unsupported = None
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


class PromptTokensDetails(BaseModel):
    cached_tokens: CachedTokens


class CompletionTokensDetails(BaseModel):
    reasoning_tokens: int = Field(description="Tokens of the reply that are thoughts.")


class UsageShape(BaseModel):
    prompt_tokens: PromptTokens
    completion_tokens: ReplyTokens
    total_tokens: TotalTokens
    prompt_tokens_details: PromptTokensDetails = Field(description="More about the prompt.")
    completion_tokens_details: CompletionTokensDetails = Field(description="More about the reply.")
