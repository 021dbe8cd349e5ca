"""What an API asks of the service: one prompt, and how to reply to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bushel.chat.reply.reader import Reader
from bushel.chat.tool_fields import offered_by
from bushel.core import Result, SamplingParams
from bushel.core.options import ModelInfo
from bushel.core.wire import Made


@dataclass(frozen=True)
class GenerationJob:
    """request: what `chat.prepare` takes: messages, prompt or prompt_token_ids, with options."""

    request: Mapping[str, Any]
    params: SamplingParams
    model: str  # as the client is answered
    api: str  # "chat", "completions"; for logs
    reply_tokens: int  # at most, where neither request, command line nor model says
    stream: bool = False
    timeout: float | None = None
    owner: str = ""  # whose it is: `callers.owner_of`
    group: str = ""  # jobs of one HTTP request (`Answer`); empty: it is the only one
    salt: str = ""  # only jobs of the same salt share what was computed
    result: Result = "text"
    part: bool = False  # of a request that is logged as a whole
    reads: bool = False  # its reply, for thoughts and calls (`core.delta`)
    priority: int = 0  # among its owner's: the lowest goes first
    background: bool = False  # nobody waits for it: everyone else goes first

    def reader(self, model_info: ModelInfo, made: Made) -> Callable[[], Reader] | None:
        """What makes a reader for each choice; None: nobody reads them."""
        if not self.reads:
            return None
        offered = offered_by(self.request.get("tools") or ())
        return lambda: Reader(model_info.reply_format, offered, opened=made.opened)
