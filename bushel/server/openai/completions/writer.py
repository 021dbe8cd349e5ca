"""What a model writes after each prompt, as chunks or as one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from bushel.core import Event, TokenLogprob
from bushel.server.api.logprobs import EncodedLogprobs, ReplyRoom
from bushel.server.http import sse
from bushel.server.openai.chunks import Chunked, ChunkUsage, what_stopped
from bushel.server.openai.completions.logprobs import LegacyLogprobs
from bushel.server.openai.completions.schema import CompletionRequest
from bushel.server.openai.prompt_logprobs import prompt_logprob_entries
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

_encode = msgspec.json.encode


class _Part(msgspec.Struct):
    """What an event adds to one choice; the fold of them is the whole choice."""

    texts: list[str] = []
    logprobs: dict[str, list[Any]] | None = None
    finish_reason: str | None = None
    stopped: str | int | None = None
    token_ids: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, more: _Part) -> None:
        self.texts += more.texts
        self.token_ids += more.token_ids
        self.finish_reason = more.finish_reason or self.finish_reason
        if self.logprobs is None:
            self.logprobs = more.logprobs
        elif more.logprobs is not None:
            for name, values in more.logprobs.items():
                self.logprobs[name] += values


class _Whole(msgspec.Struct):
    """One choice so far."""

    room: ReplyRoom
    texts: list[str] = []
    token_ids: list[int] = []
    logprobs: dict[str, EncodedLogprobs] = {}
    prompt_logprobs: EncodedLogprobs | None = None
    finish_reason: str | None = None
    stopped: str | int | None = None

    def add(self, part: _Part) -> None:
        self.texts += part.texts
        self.token_ids += part.token_ids
        if part.finish_reason is not None:
            self.finish_reason, self.stopped = part.finish_reason, part.stopped
        for name, values in (part.logprobs or {}).items():
            self.logprobs.setdefault(name, EncodedLogprobs(self.room)).add(values)

    def choice(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "text": "".join(self.texts),
            "logprobs": {name: values.list() for name, values in self.logprobs.items()} or None,
            "finish_reason": self.finish_reason,
            "stop_reason": self.stopped,
            "matched_stop": self.stopped,
        }


class CompletionWriter(Chunked):
    """echoed: the prompts' texts, where they are to come first."""

    def __init__(
        self,
        service: Service,
        answer: MultiTicket,
        body: CompletionRequest,
        model: str,
        echoed: Sequence[str] | None,
    ):
        self._answer = answer
        self._usage = ChunkUsage(answer, body)
        self._silent = body.max_tokens == 0
        self._stop_ids = frozenset(body.stop_token_ids or ())
        self._echoed = echoed
        self._each = body.choices  # choices per prompt
        self._vocabulary = service.vocabulary
        self._prompt_count = body.prompt_logprobs
        count = answer.choices
        self._tells_ids = bool(body.return_token_ids)
        self._untold = set(range(count))  # choices of a stream whose prompt's ids are due
        self._echoes = set(range(count)) if echoed is not None else set[int]()
        self._top = body.logprobs
        special = body.skip_special_tokens is False
        texts = [echoed[at // self._each] if echoed else "" for at in range(count)]
        self._logprobs = (
            None
            if body.logprobs is None
            else [LegacyLogprobs(service.vocabulary, it, shows_special=special) for it in texts]
        )
        room = ReplyRoom(service.options.limits.reply_bytes)
        self._whole = [_Whole(room) for _ in range(count)]
        self._echoed_tokens = [0] * count  # of its prompt, with their log-probabilities
        self._fields = {
            "id": f"cmpl-{answer.id}",
            "object": "text_completion",
            "created": answer.created,
            "model": model,
        }
        self._head = b"data: " + _encode(self._fields)[:-1] + b',"choices":['

    def _part(self, event: Event) -> _Part:
        """What an event says to the client: an echo comes first, and nothing of a reply that
        was not wanted (`max_tokens` 0).
        """
        stopped = what_stopped(event, self._stop_ids) if event.finish_reason else None
        part = _Part(finish_reason=event.finish_reason, stopped=stopped)
        if event.choice in self._echoes:
            self._echoes.discard(event.choice)
            assert self._echoed is not None
            part.texts.append(self._echoed[event.choice // self._each])
        if event.prompt_logprobs and self._logprobs is not None and self._echoed is not None:
            part.add(self._echo(event))
        if self._silent:
            part.finish_reason, part.stopped = event.finish_reason and "length", None
            return part
        self._usage.tokens += len(event.token_ids)
        reply = _Part([event.text], token_ids=event.token_ids)
        if self._logprobs is not None and event.logprobs:
            reply.logprobs = self._logprobs[event.choice].reply(event.logprobs)
        part.add(reply)
        return part

    def _echo(self, event: Event) -> _Part:
        """Of a long prompt they come in slices."""
        assert self._logprobs is not None
        ids = self._prompt_ids(event.choice)
        begin = self._echoed_tokens[event.choice]
        logprobs = self._cut(event.prompt_logprobs)
        self._echoed_tokens[event.choice] = end = begin + len(logprobs)
        return _Part(logprobs=self._logprobs[event.choice].prompt(ids[begin:end], logprobs))

    def _cut(self, logprobs: Sequence[TokenLogprob | None]) -> Sequence[TokenLogprob | None]:
        """Without tokens that only `prompt_logprobs` asked for."""
        if (self._prompt_count or 0) <= (self._top or 0):
            return logprobs
        return [own and replace(own, top=own.top[: self._top]) for own in logprobs]

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        return b""

    def write(self, events: Sequence[Event]) -> bytes:
        chunks: list[bytes] = []
        for event in events:
            part = self._part(event)
            text, told = part.text, self._tells_ids and part.token_ids
            if text or part.logprobs or told:
                logprobs = b"null" if part.logprobs is None else _encode(part.logprobs)
                ids = b',"token_ids":' + _encode(part.token_ids) if told else b""
                chunks.append(self._chunk(event.choice, _encode(text), logprobs, b"null" + ids))
            if part.finish_reason is not None:
                stopped = _encode(part.stopped)
                ended = b'%b,"stop_reason":%b,"matched_stop":%b'
                finish = ended % (_encode(part.finish_reason), stopped, stopped)
                chunks.append(self._chunk(event.choice, b'""', b"null", finish))
        return b"".join(chunks)

    def _chunk(self, choice: int, text: bytes, logprobs: bytes, finish: bytes) -> bytes:
        if self._tells_ids and choice in self._untold:
            self._untold.discard(choice)
            finish += b',"prompt_token_ids":' + _encode(self._prompt_ids(choice))
        form = b'%b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]%b'
        return form % (self._head, choice, text, logprobs, finish, self._usage.tail())

    def _prompt_ids(self, choice: int) -> tuple[int, ...]:
        return self._answer.tickets[choice // self._each].prompt_ids

    def end(self) -> bytes:
        return self._usage.last(self._head) + sse.DONE

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            choice = self._whole[event.choice]
            choice.add(self._part(event))
            if self._prompt_count is not None:
                told = event.prompt_logprobs, self._prompt_count
                choice.prompt_logprobs = choice.prompt_logprobs or EncodedLogprobs(choice.room)
                choice.prompt_logprobs.add(prompt_logprob_entries(self._vocabulary, *told))

    def whole(self) -> bytes:
        choices = [self._choice(at, part) for at, part in enumerate(self._whole)]
        usage = self._usage.usage()
        return _encode({**self._fields, "choices": choices, "usage": usage})

    def _choice(self, at: int, part: _Whole) -> dict[str, Any]:
        choice = part.choice(at)
        if self._tells_ids:
            choice["prompt_token_ids"] = self._prompt_ids(at)
            choice["token_ids"] = part.token_ids
        if part.prompt_logprobs is not None:
            choice["prompt_logprobs"] = part.prompt_logprobs.list()
        return choice
