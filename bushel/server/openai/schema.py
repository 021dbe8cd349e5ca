"""What requests for chat and for completions share, and their replies.

Three kinds of fields: those that are obeyed; hints that need nothing done (`user`, `store`); and
those that are known but cannot be obeyed, which are refused by name unless they are empty. Any
optional field may be null. Keys that are not named here are ignored, and logged once.

Replies are described for the OpenAPI document. Writers make the JSON themselves, for speed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from bushel.server.api.fields import Choices, Flag, Hint, StreamOptions, Unsupported
from bushel.server.api.sampling import SamplingFields

Finish = Literal["stop", "length", "tool_calls"]
STREAMED = "The reply; with `stream`, server-sent events of its chunks and [DONE]."


class OpenAIRequest(SamplingFields):
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


class PromptTokensDetails(BaseModel):
    cached_tokens: int


class UsageShape(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
