"""A reply as lines of JSON, or as one object.

    {"model", "created_at", "message": {"role", "content"}, "done": false}      a conversation's
    {"model", "created_at", "response", "done": false}                          a prompt's

A call comes whole, in one line. What stands between two tokens when nothing is said is a line that
says nothing: these streams have no comments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from bushel.core import CallBegin, CallEnd, CallPart, Delta, Event, TextDelta, ThoughtDelta
from bushel.server.api.call_arguments import arguments_object
from bushel.server.api.logprobs import EncodedLogprobs, ReplyRoom, logprob_entries
from bushel.server.errors import ApiError
from bushel.server.http import sse
from bushel.server.ollama.errors import failed_stream
from bushel.server.ollama.schema import NDJSON
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

_encode = msgspec.json.encode
HEADERS = {**sse.HEADERS, "content-type": NDJSON}

Said = dict[str, Any]
# (text, thoughts, calls) as fields of a line.
Form = Callable[[str, str, Sequence[Said]], Said]


def in_message(text: str, thoughts: str, calls: Sequence[Said]) -> Said:
    message: Said = {"role": "assistant", "content": text}
    if thoughts:
        message["thinking"] = thoughts
    if calls:
        message["tool_calls"] = list(calls)
    return {"message": message}


def in_response(text: str, thoughts: str, calls: Sequence[Said]) -> Said:
    """Prompts offer no tools, so there are no calls."""
    return {"response": text, "thinking": thoughts} if thoughts else {"response": text}


def moment() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


def line(fields: Mapping[str, Any]) -> bytes:
    return _encode(fields) + b"\n"


def framing(model: str, form: Form) -> sse.Framing:
    return sse.Framing(HEADERS, line(_piece(model, form)))


def _piece(
    model: str, form: Form, text: str = "", thoughts: str = "", calls: Sequence[Said] = ()
) -> Said:
    return {
        "model": model,
        "created_at": moment(),
        **form(text, thoughts, calls),
        "done": False,
    }


class LineWriter:
    """A `api.response.Writer`."""

    def __init__(
        self,
        service: Service,
        answer: MultiTicket,
        model: str,
        form: Form,
        *,
        reads: bool,
        logprobs: bool,
    ):
        """reads: the reply is read for thoughts and calls."""
        self._ticket = answer.tickets[0]
        self._vocabulary = service.vocabulary
        self._model = model
        self._form = form
        self._reads = reads
        self._wants_logprobs = logprobs
        self._logprobs = EncodedLogprobs(ReplyRoom(service.options.limits.reply_bytes))
        self._call: tuple[str, list[str]] | None = None  # that is being said
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Said] = []
        self._tokens = 0
        self._reason = "stop"

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        return b""

    def keepalive(self) -> bytes:
        return line(_piece(self._model, self._form))

    def write(self, events: Sequence[Event]) -> bytes:
        return b"".join([line(piece) for event in events for piece in self._pieces(event)])

    def _pieces(self, event: Event) -> list[Said]:
        pieces = [self._said(delta) for delta in self._read(event)]
        if self._wants_logprobs and event.logprobs:
            # Their text may still be held back.
            pieces = pieces or [_piece(self._model, self._form)]
            pieces[0]["logprobs"] = logprob_entries(self._vocabulary, event.logprobs)
        return pieces

    def _said(self, delta: Delta | Said) -> Said:
        if isinstance(delta, TextDelta):
            return _piece(self._model, self._form, text=delta.text)
        if isinstance(delta, ThoughtDelta):
            return _piece(self._model, self._form, thoughts=delta.text)
        assert isinstance(delta, dict)
        return _piece(self._model, self._form, calls=[delta])

    def end(self) -> bytes:
        return line({**_piece(self._model, self._form), **self._end()})

    def failed(self, error: ApiError) -> bytes:
        return failed_stream(error)

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        for event in events:
            for delta in self._read(event):
                if isinstance(delta, TextDelta):
                    self._texts.append(delta.text)
                elif isinstance(delta, ThoughtDelta):
                    self._thoughts.append(delta.text)
                else:
                    self._calls.append(delta)
            if self._wants_logprobs:
                self._logprobs.add(logprob_entries(self._vocabulary, event.logprobs))

    def whole(self) -> bytes:
        text, thoughts = "".join(self._texts), "".join(self._thoughts)
        reply = {**_piece(self._model, self._form, text, thoughts, self._calls), **self._end()}
        if self._wants_logprobs:
            reply["logprobs"] = self._logprobs.list()
        return _encode(reply)

    # -- both ------------------------------------------------------------------------------

    def _read(self, event: Event) -> list[TextDelta | ThoughtDelta | Said]:
        """What an event says; a call when it has ended."""
        self._tokens += len(event.token_ids)
        if event.finish_reason == "length":
            self._reason = "length"
        if not self._reads:
            return [TextDelta(event.text)] if event.text else []
        said: list[TextDelta | ThoughtDelta | Said] = []
        for delta in event.deltas:
            if isinstance(delta, CallBegin):
                self._call = (delta.name, [])
            elif isinstance(delta, CallPart):
                assert self._call is not None
                self._call[1].append(delta.json)
            elif isinstance(delta, CallEnd):
                assert self._call is not None
                name, pieces = self._call
                arguments = arguments_object("".join(pieces))
                said.append({"function": {"name": name, "arguments": arguments}})
            else:
                said.append(delta)
        return said

    def _end(self) -> dict[str, Any]:
        spent = self._ticket.timings
        return {
            "done": True,
            "done_reason": self._reason,
            "total_duration": nanoseconds(spent.waited + spent.prompt + spent.reply),
            "load_duration": nanoseconds(spent.waited),
            "prompt_eval_count": len(self._ticket.prompt_ids),
            "prompt_eval_duration": nanoseconds(spent.prompt),
            "eval_count": self._tokens,
            "eval_duration": nanoseconds(spent.reply),
        }
