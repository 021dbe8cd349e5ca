"""What comes out of the engine: events while a request runs, and their fold at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from bushel.core.delta import Delta

# "tool_calls" is a reader's finding, where the engine has seen a stop.
FinishReason = Literal["stop", "length", "tool_calls", "abort", "error"]


@dataclass(frozen=True)
class TokenLogprob:
    """Raw float32 log-softmax, before bias, penalties and temperature."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass
class Usage:
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens that were not computed


class Event(NamedTuple):
    """What one step added to one choice of one request.

    Every choice ends with exactly one event that has a finish reason. The engine speaks ids;
    `text`, `stop` and `deltas` are added by whoever receives the event. `text`
    (`text.detokenizer`) never contains end tokens, nor anything of a matched stop string; `stop`
    is that string. `deltas` are what the text says, where it is read for that (`chat.reply`).
    """

    request_id: str
    choice: int
    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] = ()
    finish_reason: FinishReason | None = None
    error: str | None = None
    code: str | None = None  # of a RequestError; None: the fault is ours
    stop: str | None = None
    deltas: tuple[Delta, ...] = ()
    hidden_state: tuple[float, ...] = ()  # of the prompt's last token, where that is the result


@dataclass
class Choice:
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None
    hidden_state: tuple[float, ...] = ()


@dataclass
class Output:
    """All of one request's choices; the first one's fields are the output's own."""

    choices: list[Choice]
    usage: Usage = field(default_factory=Usage)

    def fold(self, event: Event) -> None:
        choice = self.choices[event.choice]
        choice.token_ids.extend(event.token_ids)
        choice.text += event.text
        if choice.logprobs is not None:
            choice.logprobs.extend(event.logprobs)
        if choice.prompt_logprobs is not None:
            choice.prompt_logprobs.extend(event.prompt_logprobs)
        if event.hidden_state:
            choice.hidden_state = event.hidden_state
        if event.finish_reason is not None:
            choice.finish_reason = event.finish_reason
            choice.error = event.error
        self.usage.completion_tokens += len(event.token_ids)

    @property
    def done(self) -> bool:
        return all(choice.finish_reason is not None for choice in self.choices)

    @property
    def token_ids(self) -> list[int]:
        return self.choices[0].token_ids

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def finish_reason(self) -> FinishReason | None:
        return self.choices[0].finish_reason

    @property
    def error(self) -> str | None:
        return self.choices[0].error

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        return self.choices[0].logprobs

    @property
    def prompt_logprobs(self) -> list[TokenLogprob | None] | None:
        return self.choices[0].prompt_logprobs
