"""From token ids to the text a client may see: one pipeline per reply.

ids ─> Detokenizer ─> StopMatcher ─> text
       whole chars     held back while it might begin a stop
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

from bushel.core import Decoding

Decode = Callable[[Sequence[int]], str]

_BROKEN = "\ufffd"
# A character has at most four bytes; more broken tokens than this are not one character that
# is still arriving.
_MOST_PENDING = 16


class Detokenizer:
    """Incremental decoding: characters split over tokens arrive whole (B20).

    Decodes a short window at the end, because some tokenizers drop a leading space at the
    start of what they decode:

        ids   . . . . [ shown before | new ]
                      ^ start         ^ shown
    """

    def __init__(self, decode: Decode):
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0  # how many of _ids have been given out
        self._before = ""  # their text

    def copy(self) -> Detokenizer:
        twin = copy(self)
        twin._ids = [*self._ids]
        return twin

    def add(self, token: int) -> str:
        self._ids.append(token)
        text = self._unseen()
        pending = len(self._ids) - self._shown
        if text.endswith(_BROKEN) and pending <= _MOST_PENDING:
            return ""
        return self._take(text)

    def finish(self) -> str:
        return self._take(self._unseen())

    @property
    def mid_character(self) -> bool:
        """Whether the last tokens are a beginning of something that has no text yet."""
        return len(self._ids) > self._shown

    def _unseen(self) -> str:
        return self._decode(self._ids)[len(self._before) :]

    def _take(self, text: str) -> str:
        """The tokens just shown become the context of the next ones.

        Tokens without text (specials) are added to the context instead of replacing it.
        """
        if text:
            self._ids = self._ids[self._shown :] or self._ids[-1:]
        elif len(self._ids) > 2 * _MOST_PENDING:
            self._ids = self._ids[: _MOST_PENDING + 1]
        self._shown = len(self._ids)
        self._before = self._decode(self._ids)
        return text


class StopMatcher:
    """Cuts text at the first stop string and holds back what might begin one (B22).

    included: the text ends behind it, and not before it.
    """

    def __init__(self, stops: Sequence[str], *, included: bool = False):
        self._stops = tuple(stops)
        self._included = included
        self._held = ""
        self.met: str | None = None

    def add(self, text: str) -> tuple[str, bool]:
        """Text that is safe to show, and whether a stop string has been met."""
        if not self._stops:
            return text, False
        self._held += text
        places = [(self._held.find(stop), stop) for stop in self._stops]
        # The first one to be complete, so that it does not matter in what pieces text comes.
        complete = [(at + len(stop), at, stop) for at, stop in places if at >= 0]
        if complete:
            end, at, self.met = min(complete)
            shown, self._held = self._held[: end if self._included else at], ""
            return shown, True
        keep = self._possible_beginning()
        split = len(self._held) - keep
        shown, self._held = self._held[:split], self._held[split:]
        return shown, False

    def finish(self) -> str:
        shown, self._held = self._held, ""
        return shown

    def _possible_beginning(self) -> int:
        """Length of the longest end of the held text that a stop string starts with."""
        longest = max(map(len, self._stops)) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0


class OutputProcessor:
    """One choice's text, from its token ids.

    The engine runs one where a stop string may end the reply; a receiver of events runs one
    to get the text. Both see the same ids, so both find the same end.
    """

    def __init__(self, decode: Decode, decoding: Decoding):
        self._detokenizer = Detokenizer(decode)
        self._stops = StopMatcher(decoding.stops, included=decoding.include_stop)
        self._shows_end = decoding.include_stop
        self._end_ids = decoding.end_ids
        self._min_tokens = decoding.min_tokens
        self._markers = dict(decoding.markers)
        self._count = 0
        self._text: list[str] = []

    def copy(self) -> OutputProcessor:
        """One that goes on by itself."""
        twin = copy(self)
        twin._detokenizer, twin._stops = self._detokenizer.copy(), copy(self._stops)
        twin._text = [*self._text]
        return twin

    def add(self, token: int) -> bool:
        """Take one token; True if it ends the reply, after which nothing may be added."""
        self._count += 1
        ends = token in self._end_ids
        if ends and not self._shows_end:
            self.finish()
            return True
        text = self._detokenizer.add(token)
        if token in self._markers:  # it has no text of its own
            text = (text or self._detokenizer.finish()) + self._markers[token]
        if ends:
            self._text.append(self._stops.add(text)[0])
            self.finish()
            return True
        if self._count < self._min_tokens:
            self._text.append(self._stops.finish() + text)
            return False
        shown, stopped = self._stops.add(text)
        self._text.append(shown)
        return stopped

    def finish(self) -> bool:
        """No more tokens: release what is held. True if that completes a stop string."""
        rest = self._detokenizer.finish()
        if self._count < self._min_tokens:
            self._text.append(self._stops.finish() + rest)
            return False
        shown, stopped = self._stops.add(rest)
        self._text.append(shown if stopped else shown + self._stops.finish())
        return stopped

    @property
    def mid_character(self) -> bool:
        return self._detokenizer.mid_character

    @property
    def stop(self) -> str | None:
        """The stop string that ended it."""
        return self._stops.met

    def take(self) -> str:
        """Text that became safe to show since the last call."""
        text, self._text = "".join(self._text), []
        return text
