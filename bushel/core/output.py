"""What comes out of the engine: events while a request runs, and their fold at the end."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from bushel.core.delta import CallBegin, CallEnd, CallPart, Delta, ThoughtDelta

# "tool_calls" is a reader's finding, where the engine has seen a stop.
FinishReason = Literal["stop", "length", "tool_calls", "abort", "error"]


@dataclass(frozen=True)
class TokenLogprob:
    """Raw float32 log-softmax, before bias, penalties and temperature.

    >>> llm = LLM("bushel:tiny")
    >>> [output] = llm.generate("Once", {"logprobs": 2, "max_tokens": 1})
    >>> [first] = output.logprobs
    >>> first.logprob <= 0, len(first.top)
    (True, 2)
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = None  # of a prompt's token: 1 for the likeliest


@dataclass
class Usage:
    """Tokens of a request.

    >>> llm = LLM("bushel:tiny")
    >>> [output] = llm.generate({"prompt_token_ids": [40, 41, 42]}, {"max_tokens": 1})
    >>> output.usage.prompt_tokens, output.usage.completion_tokens
    (3, 1)
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens that were not computed
    drafted_tokens: int = 0  # guessed before they were computed
    accepted_tokens: int = 0  # of those, how many are part of the reply


class Event(NamedTuple):
    """What one step added to one choice of one request.

    Every choice ends with exactly one event that has a finish reason. The engine speaks ids;
    `text`, `stop` and `deltas` are added by whoever receives the event. `text`
    (`text.detokenizer`) never contains end tokens, nor anything of a matched stop string; `stop`
    is that string. Where a reply is read for thoughts and calls (`chat.reply`), as it is in a
    conversation, `deltas` are all that it says, and `text` is the answer alone.

    >>> llm = LLM("bushel:tiny")
    >>> asked = {"messages": [{"role": "user", "content": "What is 3 + 4?"}]}
    >>> for event in llm.stream(asked):
    ...     print(event.text, end="")
    3 + 4 = 7
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
    embedding: tuple[float, ...] = ()  # or score: of the prompt, where that is the result
    drafted: int = 0  # tokens that were guessed for this step (`EngineOptions.speculate`)
    accepted: int = 0  # of those, how many are among `token_ids`


@dataclass
class FunctionCall:
    """A tool that a reply calls. text: the arguments as the model wrote them.

    arguments: what they say; None where the reply was cut off inside the call, or they are no
    JSON object (B24).

    >>> llm = LLM("bushel:tiny")
    >>> def get_weather(city: str) -> str:
    ...     '''The weather in a city.
    ...
    ...     Args:
    ...         city: its name
    ...     '''
    ...     return "sunny"
    >>> asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    >>> [output] = llm.chat(asked, tools=[get_weather])
    >>> [call] = output.tool_calls
    >>> call.name, call.arguments
    ('get_weather', {'city': 'Paris'})
    """

    id: str
    name: str
    text: str = ""
    arguments: dict[str, Any] | None = None

    def end(self, complete: bool) -> None:
        """Nothing more comes of it."""
        try:
            value = json.loads(self.text or "{}") if complete else None
        except ValueError:
            value = None
        self.arguments = value if isinstance(value, dict) else None


@dataclass
class Choice:
    """One of the replies to a request (`SamplingParams.n`).

    In a conversation `text` is the answer, `reasoning` what the model thought before it, and
    `tool_calls` what it called; otherwise all of the reply is text.

    >>> llm = LLM("bushel:tiny")
    >>> [output] = llm.generate("Once upon a time", {"n": 2, "temperature": 1.0, "seed": 1})
    >>> [choice.finish_reason for choice in output.choices]
    ['stop', 'stop']
    """

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None
    embedding: tuple[float, ...] = ()  # or score, as the model gives it
    reasoning: str = ""
    tool_calls: list[FunctionCall] = field(default_factory=list)
    is_json: bool = False  # its text was asked to be JSON

    @property
    def parsed(self) -> Any:
        """What the text says, where it was asked to be JSON and has come to its end; or None."""
        if not self.is_json or self.finish_reason != "stop":
            return None
        try:
            return json.loads(self.text)
        except ValueError:  # a stop string may have cut it
            return None

    @property
    def message(self) -> dict[str, Any]:
        """The turn that this reply is, to go on with the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": _function(call)}
                for call in self.tool_calls
            ]
        return message

    def fold(self, event: Event) -> None:
        self.token_ids.extend(event.token_ids)
        self.text += event.text
        for delta in event.deltas:
            if isinstance(delta, ThoughtDelta):
                self.reasoning += delta.text
            elif isinstance(delta, CallBegin):
                self.tool_calls.append(FunctionCall(f"call_{uuid.uuid4().hex[:24]}", delta.name))
            elif isinstance(delta, CallPart):
                self.tool_calls[-1].text += delta.json
            elif isinstance(delta, CallEnd):
                self.tool_calls[-1].end(delta.complete)
        if self.logprobs is not None:
            self.logprobs.extend(event.logprobs)
        if self.prompt_logprobs is not None:
            self.prompt_logprobs.extend(event.prompt_logprobs)
        if event.embedding:
            self.embedding = event.embedding
        if event.finish_reason is not None:
            self.finish_reason = event.finish_reason
            self.error = event.error


def _function(call: FunctionCall) -> dict[str, str]:
    return {"name": call.name, "arguments": call.text}


@dataclass
class Output:
    """All of one request's choices; the first one's fields are the output's own.

    A request that cannot be served has `error` set, and nothing else.

    >>> llm = LLM("bushel:tiny")
    >>> [output] = llm.chat([{"role": "user", "content": "What is 3 + 4?"}])
    >>> output.text, output.finish_reason, output.error
    ('3 + 4 = 7', 'stop', None)
    """

    choices: list[Choice]
    usage: Usage = field(default_factory=Usage)

    def fold(self, event: Event) -> None:
        self.choices[event.choice].fold(event)
        self.usage.completion_tokens += len(event.token_ids)
        self.usage.drafted_tokens += event.drafted
        self.usage.accepted_tokens += event.accepted

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

    @property
    def reasoning(self) -> str:
        return self.choices[0].reasoning

    @property
    def tool_calls(self) -> list[FunctionCall]:
        return self.choices[0].tool_calls

    @property
    def parsed(self) -> Any:
        return self.choices[0].parsed

    @property
    def message(self) -> dict[str, Any]:
        return self.choices[0].message
