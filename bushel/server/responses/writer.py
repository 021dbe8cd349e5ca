"""A reply in the form of the Responses API, as a stream of events or as one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bushel.core import Event
from bushel.server.api.logprobs import ReplyRoom, logprob_entries
from bushel.server.errors import ApiError
from bushel.server.responses.envelope import Envelope, Frames, Status
from bushel.server.responses.items import Item
from bushel.server.responses.output import ItemOutput
from bushel.server.responses.output_items import Entries, ReasoningForm
from bushel.server.responses.schema import ResponsesRequest
from bushel.server.responses.tools import Offers
from bushel.server.responses.usage import ResponseTally
from bushel.server.service.multi_ticket import MultiTicket

if TYPE_CHECKING:
    from bushel.server.service.service import Service

_encode = msgspec.json.encode
_REPEATS = 4  # times that the end of a stream repeats what was said

# Takes the response as it was given, and its output.
Keep = Callable[[bytes, list[Item]], None]


class ResponseWriter:
    """A `api.response.Writer`. keep: what to do with a response that has ended well."""

    def __init__(
        self,
        service: Service,
        answer: MultiTicket,
        envelope: Envelope,
        body: ResponsesRequest,
        offers: Offers,
        keep: Keep | None = None,
    ):
        self._vocabulary = service.vocabulary
        self._logprobs = body.logprobs is not None
        self._shows_special = body.skip_special_tokens is False
        self._envelope = envelope
        self._keep = keep
        self._room = ReplyRoom(service.options.limits.reply_bytes // _REPEATS)
        self._tally = ResponseTally(answer)
        self._frames = Frames()
        self._written: list[bytes] = []
        self._streams = False
        self._cut = False
        self._output = ItemOutput(
            self._emit, offers, ReasoningForm(body.summarised, body.encrypted)
        )

    def _emit(self, kind: str, fields: dict[str, Any]) -> None:
        if self._streams:
            self._written.append(self._frames.frame(kind, fields))

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            self._tally.take(event)
            self._output.take(event, self._entries(event))
            if event.finish_reason is not None:
                self._cut = event.finish_reason == "length"
                self._output.end(cut=self._cut)

    def _entries(self, event: Event) -> Entries:
        if not self._logprobs:
            return []
        shown = [
            logprob
            for logprob in event.logprobs
            if self._shows_special or not self._vocabulary.hidden(logprob.token_id)
        ]
        entries = [_encode(entry) for entry in logprob_entries(self._vocabulary, shown)]
        self._room.take(sum(map(len, entries)))
        return list(map(msgspec.Raw, entries))

    @property
    def _status(self) -> Status:
        return "incomplete" if self._cut else "completed"

    # -- a stream --------------------------------------------------------------------------

    def begin(self) -> bytes:
        self._streams = True
        created = {"response": self._envelope.response("in_progress")}
        return self._frames.frame("response.created", created) + self.keepalive()

    def keepalive(self) -> bytes:
        """Comments do not count for Codex, which waits 300 s for data."""
        running = {"response": self._envelope.response("in_progress")}
        return self._frames.frame("response.in_progress", running)

    def write(self, events: Sequence[Event]) -> bytes:
        self._take(events)
        frames, self._written = self._written, []
        return b"".join(frames)

    def end(self) -> bytes:
        return self._frames.frame(f"response.{self._status}", {"response": self._ended()})

    def failed(self, error: ApiError) -> bytes:
        self._output.lose()
        output, usage = self._output.items, self._tally.usage()
        response = self._envelope.response("failed", output, usage, error)
        return self._frames.frame("response.failed", {"response": response})

    # -- a whole reply ---------------------------------------------------------------------

    def fold(self, events: Sequence[Event]) -> None:
        self._take(events)

    def whole(self) -> bytes:
        return bytes(self._ended())

    def _ended(self) -> msgspec.Raw:
        output = self._output.items
        response = self._envelope.response(self._status, output, self._tally.usage())
        if self._keep is not None:
            self._keep(bytes(response), output)
        return response
