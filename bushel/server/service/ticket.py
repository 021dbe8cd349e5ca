"""One request on its way through the server, and what its API reads of it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from types import TracebackType
from typing import NamedTuple, TypeVar

from bushel.chat.reply.choice_text import ChoiceText
from bushel.chat.reply.reader import Reader
from bushel.core import Decoding, Event
from bushel.core.wire import Submit
from bushel.server.errors import ApiError
from bushel.server.observability.request_record import Record, Timings
from bushel.text.detokenizer import Decode

# Tokens that are turned into text, and then into chunks, before others get their turn: 9 ms where
# each comes with the 20 likeliest, 1 ms without.
SLICE_TOKENS = 256
# Of events that a client has not read: 20,000 tokens with the 20 likeliest of each, or 250,000
# without. The engine cannot hold a row back, so a reader who is that far behind is cut off.
_MOST_UNREAD = 64 << 20
# Bytes of an event, of a token's log-probability, and of a likely one beside it. By `tracemalloc`
# an event of one token takes 253 bytes, 509 with its log-probability, 2,813 with 20 more.
_EVENT, _TOKEN, _LIKELY = 250, 200, 130
# Numbers of an embedding that take as long as a token does.
_NUMBERS = 16


T = TypeVar("T")


class Drafts(NamedTuple):
    """Tokens that were guessed ahead."""

    accepted: int
    rejected: int

    @property
    def usage(self) -> dict[str, int]:
        """By OpenAI's names, which every API's usage has."""
        return {
            "accepted_prediction_tokens": self.accepted,
            "rejected_prediction_tokens": self.rejected,
        }


def weight(event: Event) -> int:
    """The tokens that have to be worked on for an event."""
    embedding = len(event.embedding) // _NUMBERS
    return max(1, len(event.token_ids), len(event.prompt_logprobs), embedding)


def _size(event: Event) -> int:
    size = _EVENT + 32 * (len(event.token_ids) + len(event.embedding))
    if not event.logprobs and not event.prompt_logprobs:
        return size
    for logprobs in (event.logprobs, event.prompt_logprobs):
        if logprobs:
            last = logprobs[-1]
            size += len(logprobs) * (_TOKEN + _LIKELY * (len(last.top) if last else 0))
    return size


class Live:
    """A request that the engine has, or will have. Belongs to the event loop.

    wake: to be called when there is something new to read of it.
    """

    def __init__(self, record: Record, submit: Submit, tail: memoryview, wake: Callable[[], None]):
        self.record = record
        self.submit = submit
        self.tail: memoryview | None = tail  # kept until the first event, to submit it again
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: ApiError | None = None
        self.crashes = 0  # of engines that had it
        self.events: deque[Event] = deque()  # not read yet
        self._unread = 0  # bytes of them, about
        self.wake = wake
        self.deadline: asyncio.TimerHandle | None = None
        self._open = submit.choices  # without a finish reason
        self._last: list[float | None] = [None] * submit.choices

    @property
    def begun(self) -> bool:
        return self.tail is None

    @property
    def done(self) -> bool:
        return self._open == 0 or self.error is not None

    def release(self) -> int:
        """Keep its tensors no longer; returns how many bytes they were."""
        tail, self.tail = self.tail, None
        return 0 if tail is None else tail.nbytes

    def take(self, event: Event, now: float) -> float | None:
        """An event of the engine; returns the gap since the choice's token before it. Whoever is to
        read it is not woken yet.
        """
        record = self.record
        self.events.append(event)
        self._unread += _size(event)
        gap: float | None = None
        if event.token_ids:
            record.phase, record.last_token = "decode", now
            record.completion_tokens += len(event.token_ids)
            if event.drafted:
                record.drafted_tokens += event.drafted
                record.accepted_tokens += event.accepted
            before = self._last[event.choice]
            if before is not None:
                gap = now - before
                if gap > record.largest_gap:
                    record.largest_gap = gap
            elif record.first_token is None:
                record.first_token = now
            self._last[event.choice] = now
        if event.finish_reason is not None:
            self._open -= 1
            record.finish_reasons.append(event.finish_reason)
        return gap

    @property
    def overrun(self) -> bool:
        """Whether its client has left too much unread."""
        return self._unread > _MOST_UNREAD

    def some(self, most: int) -> list[Event]:
        """The next events, of about so many tokens."""
        if len(self.events) == 1:  # as it nearly always is
            self._unread = 0
            return [self.events.popleft()]
        events: list[Event] = []
        tokens = 0
        while self.events and tokens < most:
            event = self.events.popleft()
            events.append(event)
            tokens += weight(event)
        self._unread -= sum(map(_size, events))
        return events

    def fail(self, error: ApiError) -> None:
        if self.error is None:
            self.error = error
            self.wake()
            if not self.accepted.done():
                self.accepted.set_exception(error)


class Ticket:
    """What `Service.open` gives: a block that aborts when it is left, and events to be taken in it.
    Whoever opened it is woken when there are some (`MultiTicket`).
    """

    def __init__(
        self,
        live: Live,
        decode: Decode,
        leave: Callable[[Live], None],
        read: Callable[[], Reader] | None = None,
    ):
        """read: makes what reads a choice's text for thoughts and calls."""
        self.id = live.record.id
        self.created = int(time.time())
        self.prompt_ids = live.submit.ids
        self._live = live
        self._leave = leave
        decoding: Decoding = live.submit.decoding
        self._replies = [
            ChoiceText(decode, decoding, None if read is None else read())
            for _ in range(live.submit.choices)
        ]

    @property
    def cached_tokens(self) -> int:
        return self._live.record.cached_tokens

    @property
    def drafts(self) -> Drafts:
        record = self._live.record
        return Drafts(record.accepted_tokens, record.drafted_tokens - record.accepted_tokens)

    @property
    def timings(self) -> Timings:
        return self._live.record.timings

    @property
    def stored_tokens(self) -> int:
        """Of the prompt, what this request adds to what is kept for later ones: all but its last
        token, where anything is kept.
        """
        record = self._live.record
        return 0 if record.reason == "off" else len(self.prompt_ids) - 1 - record.cached_tokens

    def __enter__(self) -> Ticket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._leave(self._live)

    @property
    def more(self) -> bool:
        """Whether there is something to take, or to raise."""
        return bool(self._live.events) or self._live.error is not None

    @property
    def done(self) -> bool:
        """Whether all has been taken, and nothing more will come."""
        return self._live.done and not self.more

    def take(self, most: int, first_choice: int) -> list[Event]:
        """What happened since the last time, or about so many tokens of it: at most one event per
        choice, numbered from the first, with text that may be shown. ApiError when the request is
        lost.
        """
        if not self._live.events:
            if self._live.error is not None:
                raise self._live.error
            return []
        events = self._live.some(most)
        if len(events) == 1:
            return [self._fold(events, first_choice)]
        return [self._fold(each, first_choice) for each in _by_choice(events)]

    def _fold(self, events: list[Event], first_choice: int) -> Event:
        """Several events of one choice as one, with their text and what it says."""
        first, last = events[0], events[-1]
        alone = len(events) == 1
        token_ids = first.token_ids if alone else _chained(each.token_ids for each in events)
        reply = self._replies[first.choice]
        text, deltas, finish = reply.take(token_ids, last.finish_reason)
        # Made once, and not by `_replace`, which costs 3 us each time.
        return Event(
            first.request_id,
            first_choice + first.choice,
            token_ids,
            text,
            first.logprobs if alone else _chained(each.logprobs for each in events),
            first.prompt_logprobs if alone else _chained(each.prompt_logprobs for each in events),
            finish,
            stop=None if finish is None else reply.stop,
            deltas=deltas,
            embedding=last.embedding,
            drafted=first.drafted if alone else sum(each.drafted for each in events),
            accepted=first.accepted if alone else sum(each.accepted for each in events),
        )


def _chained(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(chain.from_iterable(parts))


def _by_choice(events: list[Event]) -> list[list[Event]]:
    choices: dict[int, list[Event]] = {}
    for event in events:
        choices.setdefault(event.choice, []).append(event)
    return list(choices.values())
