"""What requests for chat and for completions share, and their replies.

Three kinds of fields: those that are obeyed; hints that need nothing done (`user`, `store`); and
those that are known but cannot be obeyed, which are refused by name unless they are empty. Any
optional field may be null. Of keys that are not named here, see `api.unread_fields`.

Replies are described for the OpenAPI document. Writers make the JSON themselves, for speed.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from bushel.server.api.fields import Choices, Flag, TopLogprobs, Truncation, Unsupported
from bushel.server.api.reply_fields import (
    AcceptedTokens,
    CachedTokens,
    PromptTokens,
    RejectedTokens,
    ReplyTokens,
    TotalTokens,
)
from bushel.server.api.sampling import SamplingFields
from bushel.server.api.shared_fields import (
    IGNORED,
    TOP_LOGPROBS,
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
ReplyTokenIds = Annotated[
    list[int] | None,
    Field(description="The reply's tokens, if `return_token_ids` was asked for."),
]
PromptTokenIds = Annotated[
    list[int] | None,
    Field(description="The prompt's tokens, if `return_token_ids` was asked for."),
]


class PromptLogprob(BaseModel):
    logprob: float = Field(description="The logarithm of its probability.")
    rank: int = Field(description="How many tokens are at least as likely, itself included.")
    decoded_token: str = Field(description="Its text.")


PromptLogprobs = Annotated[
    list[dict[str, PromptLogprob] | None] | None,
    Field(
        description="For each token of the prompt, by their ids, that token and the likeliest in "
        "its place; null for the first. If `prompt_logprobs` was asked for."
    ),
]
STREAMED = "The reply; with `stream`, server-sent events of its chunks and [DONE]."


class OpenAIRequest(SamplingFields):
    """What chat and completions share."""

    model: Model = None
    stream: Stream = None
    stream_options: StreamedUsage = None
    n: Choices | None = Field(
        None, description="Choices for each prompt, which share its computation (default: 1)."
    )
    return_token_ids: Flag | None = Field(
        None,
        description="Whether the ids of the prompt's and the reply's tokens are told, too; in a "
        "stream those of the prompt come first (default: false).",
    )
    prompt_logprobs: TopLogprobs | None = Field(
        None,
        description=f"{TOP_LOGPROBS} of the prompt, which is computed anew for it; not in a stream "
        "(default: none, and nothing of the prompt).",
    )
    truncate_prompt_tokens: Truncation | None = Field(
        None,
        description="Keep so many tokens at the end of a longer prompt of text; -1: as many as "
        "leave room for the reply (default: a prompt that is too long is refused).",
    )

    user: IgnoredHint = None
    metadata: IgnoredObject = None
    store: Annotated[Flag | None, IGNORED] = None
    service_tier: IgnoredHint = None
    prompt_cache_key: IgnoredHint = None
    prompt_cache_options: IgnoredObject = None
    prompt_cache_retention: IgnoredHint = None
    safety_identifier: IgnoredHint = None

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
    accepted_prediction_tokens: AcceptedTokens
    rejected_prediction_tokens: RejectedTokens
    reasoning_tokens: int = Field(description="Tokens of the reply that are thoughts.")


class UsageShape(BaseModel):
    prompt_tokens: PromptTokens
    completion_tokens: ReplyTokens
    total_tokens: TotalTokens
    prompt_tokens_details: PromptTokensDetails = Field(description="More about the prompt.")
    completion_tokens_details: CompletionTokensDetails = Field(description="More about the reply.")
