"""The same request to a server, through OpenAI's SDK, and to an `LLM`; and whether both agree.

A request is a prompt (messages, or what a completion takes) and fields as the API names them.
`Said` is one choice of a reply, whoever gave it and in however many pieces.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from openai import AsyncOpenAI, OpenAI

from bushel.core import Output, SamplingParams, TokenLogprob
from tests.server.server_process import PATIENCE

if TYPE_CHECKING:
    from bushel import LLM  # loads MLX, which few of the tests around here need

MODEL = "bushel:tiny"
T = TypeVar("T")
# Both compute in float32 on the CPU; what differs is the company in the batch.
BOUND = 1e-4

# What the SDK has no argument for.
_EXTRA = frozenset(
    ("top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos", "stop_token_ids")
)
# What says how the reply is delivered, not what it is.
_DELIVERY = frozenset(("model", "stream", "stream_options", "echo", "user", "metadata"))


@dataclass
class Said:
    """tokens: their bytes. logprobs: of each token, its own and those of the likeliest."""

    text: str = ""
    finish: str | None = None
    tokens: list[bytes] = field(default_factory=list)
    logprobs: list[list[float]] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)


@dataclass
class Heard:
    """A reply: its choices, and the tokens of prompt and reply."""

    choices: list[Said]
    usage: tuple[int, int]

    @property
    def text(self) -> str:
        return self.choices[0].text


def user(*content: Any) -> list[dict[str, Any]]:
    """A conversation of one message: a text, or its parts."""
    said = content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)
    return [{"role": "user", "content": said}]


# -- what the LLM says ------------------------------------------------------------------------


def params(**fields: Any) -> SamplingParams:
    """`SamplingParams` for the API's fields."""
    said = {name: value for name, value in fields.items() if name not in _DELIVERY}
    if "max_completion_tokens" in said:
        said["max_tokens"] = said.pop("max_completion_tokens")
    if "top_logprobs" in said:
        said["logprobs"] = said.pop("top_logprobs")
    return SamplingParams(**said)


@cache
def _bytes_of_letters() -> dict[str, int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}


class Reference:
    """An `LLM` whose replies are in the server's terms. It serves one request at a time.

    The same question is not computed twice: what it says is fixed.
    """

    def __init__(self, llm: LLM):
        self.llm = llm
        self._known: dict[str, Output] = {}
        assert llm._engine is not None
        self.tokenizer = llm._engine.model.host.tokenizer

    def chat(self, messages: Sequence[Any], **fields: Any) -> Heard:
        return self.heard(self.output({"messages": messages}, **fields))

    def text(self, prompt: str | list[int], **fields: Any) -> Heard:
        """As the completions API has it: a token is always among the likeliest of its place."""
        form = "prompt" if isinstance(prompt, str) else "prompt_token_ids"
        return self.heard(self.output({form: prompt}, **fields), own=True)

    def output(self, request: dict[str, Any], **fields: Any) -> Output:
        question = json.dumps([request, fields], sort_keys=True)
        if question not in self._known:
            [output] = self.llm.generate([request], params(**fields))
            assert output.error is None, output.error
            self._known[question] = output
        return self._known[question]

    def heard(self, output: Output, *, own: bool = False) -> Heard:
        choices = [
            Said(
                text=choice.text,
                finish=choice.finish_reason,
                tokens=[self.bytes(logprob.token_id) for logprob in choice.logprobs or ()],
                logprobs=[row(logprob, own=own) for logprob in choice.logprobs or ()],
            )
            for choice in output.choices
        ]
        return Heard(choices, (output.usage.prompt_tokens, output.usage.completion_tokens))

    def prompt_rows(self, output: Output) -> list[list[float]]:
        """Of every prompt token; the first has none."""
        return [
            row(logprob, own=True) if logprob else [] for logprob in output.prompt_logprobs or ()
        ]

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def bytes(self, token: int) -> bytes:
        """Read off the tokenizer's own spelling, not by the server's code."""
        added = self.tokenizer.hf.added_tokens_decoder
        if token in added:
            return str(added[token].content).encode()
        piece = self.tokenizer.hf.convert_ids_to_tokens(token)
        return bytes(_bytes_of_letters()[letter] for letter in piece)


def row(found: TokenLogprob, *, own: bool) -> list[float]:
    """A token's log-probability and those of the likeliest; `own`: itself always among them."""
    top = dict(found.top)
    if own:
        top.setdefault(found.token_id, found.logprob)
    return [found.logprob, *sorted(top.values(), reverse=True)]


# -- what the server says ---------------------------------------------------------------------


def arguments(**fields: Any) -> dict[str, Any]:
    """The API's fields as arguments of the SDK."""
    given = {name: value for name, value in fields.items() if name not in _EXTRA}
    extra = {name: value for name, value in fields.items() if name in _EXTRA}
    return {"model": MODEL, **given, **({"extra_body": extra} if extra else {})}


def streaming(**fields: Any) -> dict[str, Any]:
    return arguments(**fields, stream=True, stream_options={"include_usage": True})


def of_chat(reply: Any) -> Heard:
    choices = []
    for at, choice in enumerate(reply.choices):
        assert choice.index == at
        assert choice.message.role == "assistant"
        said = Said(text=choice.message.content, finish=choice.finish_reason)
        _take_entries(said, choice.logprobs)
        choices.append(said)
    return Heard(choices, _usage(reply.usage))


def of_chat_chunks(chunks: Iterable[Any]) -> Heard:
    """Checks the form of the stream on the way."""
    choices: dict[int, Said] = {}
    usage = None
    for chunk in chunks:
        assert usage is None, "a chunk after the usage"
        usage = chunk.usage
        assert bool(chunk.choices) != bool(usage)
        for choice in chunk.choices:
            if choice.index not in choices:
                assert choice.delta.role == "assistant"
            said = choices.setdefault(choice.index, Said())
            assert said.finish is None, "a chunk after the finish reason"
            said.deltas.append(choice.delta.content or "")
            said.finish = choice.finish_reason
            _take_entries(said, choice.logprobs)
    return _folded(choices, usage)


def _take_entries(said: Said, logprobs: Any) -> None:
    for entry in logprobs.content if logprobs else ():
        said.tokens.append(bytes(entry.bytes))
        said.logprobs.append([entry.logprob, *(each.logprob for each in entry.top_logprobs)])


def of_completion(reply: Any) -> Heard:
    assert [choice.index for choice in reply.choices] == list(range(len(reply.choices)))
    choices = [Said(text=choice.text, finish=choice.finish_reason) for choice in reply.choices]
    for said, choice in zip(choices, reply.choices, strict=True):
        _take_lists(said, choice.logprobs)
    return Heard(choices, _usage(reply.usage))


def of_completion_chunks(chunks: Iterable[Any]) -> Heard:
    choices: dict[int, Said] = {}
    usage = None
    for chunk in chunks:
        assert usage is None, "a chunk after the usage"
        usage = chunk.usage
        for choice in chunk.choices:
            said = choices.setdefault(choice.index, Said())
            assert said.finish is None, "a chunk after the finish reason"
            said.deltas.append(choice.text)
            said.finish = choice.finish_reason
            _take_lists(said, choice.logprobs)
    return _folded(choices, usage)


def _take_lists(said: Said, logprobs: Any) -> None:
    if logprobs is None:
        return
    said.tokens += map(named, logprobs.tokens)
    rows = zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True)
    for token, own, top in rows:
        if own is None:
            said.logprobs.append([])
            continue
        assert top[token] == own
        said.logprobs.append([own, *sorted(top.values(), reverse=True)])


def named(token: str) -> bytes:
    """A token's bytes from its name in the completions API."""
    if token.startswith("bytes:"):
        return bytes.fromhex(token.removeprefix("bytes:").replace("\\x", ""))
    return token.encode()


def _folded(choices: dict[int, Said], usage: Any) -> Heard:
    for said in choices.values():
        said.text = "".join(said.deltas)
    return Heard([choices[at] for at in sorted(choices)], _usage(usage))


def _usage(usage: Any) -> tuple[int, int]:
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 <= usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens
    return usage.prompt_tokens, usage.completion_tokens


# -- four ways to ask --------------------------------------------------------------------------

WAYS = ("sync", "sync streamed", "async", "async streamed")
FORMS = WAYS[:2]  # where it is the form of the reply that matters


class Caller:
    """One user of a server: the SDK's two clients, and a loop for the one that needs it."""

    def __init__(self, url: str, key: str = "unused"):
        settings: dict[str, Any] = {
            "base_url": f"{url}/v1",
            "api_key": key,
            "max_retries": 0,
            "timeout": PATIENCE,
        }
        self.sdk = OpenAI(**settings)
        self.later = AsyncOpenAI(**settings)
        # As a function of anything: messages here are plain dictionaries, some of them wrong.
        self.create: Any = self.sdk.chat.completions.create
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self.run(self.later.close())
        self._runner.close()
        self.sdk.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def together(self, *work: Coroutine[Any, Any, T]) -> list[T]:
        async def all_of_it() -> list[T]:
            return await asyncio.gather(*work)

        return self.run(all_of_it())

    def chat(self, messages: Sequence[Any], way: str = "sync", **fields: Any) -> Heard:
        if way.startswith("async"):
            return self.run(self.chat_later(messages, way, **fields))
        if way == "sync":
            return of_chat(self.create(messages=messages, **arguments(**fields)))
        with self.create(messages=messages, **streaming(**fields)) as chunks:
            return of_chat_chunks(chunks)

    async def chat_later(self, messages: Sequence[Any], way: str = "async", **fields: Any) -> Heard:
        create: Any = self.later.chat.completions.create
        if way == "async":
            return of_chat(await create(messages=messages, **arguments(**fields)))
        chunks = await create(messages=messages, **streaming(**fields))
        return of_chat_chunks([chunk async for chunk in chunks])

    def complete(self, prompt: Any, way: str = "sync", **fields: Any) -> Heard:
        if way.startswith("async"):
            return self.run(self._complete_later(prompt, way, **fields))
        create: Any = self.sdk.completions.create
        if way == "sync":
            return of_completion(create(prompt=prompt, **arguments(**fields)))
        with create(prompt=prompt, **streaming(**fields)) as chunks:
            return of_completion_chunks(chunks)

    async def _complete_later(self, prompt: Any, way: str, **fields: Any) -> Heard:
        create: Any = self.later.completions.create
        if way == "async":
            return of_completion(await create(prompt=prompt, **arguments(**fields)))
        chunks = await create(prompt=prompt, **streaming(**fields))
        return of_completion_chunks([chunk async for chunk in chunks])


# -- whether they agree ------------------------------------------------------------------------


def assert_same(got: Heard, expected: Heard) -> None:
    assert got.usage == expected.usage
    assert len(got.choices) == len(expected.choices)
    for one, two in zip(got.choices, expected.choices, strict=True):
        assert (one.tokens, one.text, one.finish) == (two.tokens, two.text, two.finish)
        assert difference(one, two) < BOUND


def difference(one: Said, two: Said) -> float:
    """The largest difference of log-probabilities."""
    worst = 0.0
    for first, second in zip(one.logprobs, two.logprobs, strict=True):
        pairs = zip(first, second, strict=True)
        worst = max([worst, *(abs(a - b) for a, b in pairs)])
    return worst
