"""One choice's text, to deltas.

    text ──opening──> thoughts ──ending──> text ──start──> section ──done──> text …

White space beside markup is layout: one newline behind an opening and before an ending, all of it
between thoughts and text, and what stands between text and a call or between calls. Everything
else is said exactly as it was generated.

Thoughts that mention a call are thoughts. Models that go over to calling without ending their
thoughts are understood in two cases: the call begins with a special token, which nobody writes
in passing; or the reply ends with it, so that it cannot have been a draft. A reply that ends
inside its thoughts has said nothing else.
"""

from __future__ import annotations

from bushel.chat.reply.draft_call import DraftCall
from bushel.chat.reply.marker_sets import marker_sets_for
from bushel.chat.tool_parsers.generic import GENERIC
from bushel.chat.tool_parsers.harmony import HARMONY, HarmonyReply
from bushel.chat.tool_parsers.tool_format import CallSection, Offered
from bushel.core import (
    CallBegin,
    CallEnd,
    CallPart,
    Delta,
    FinishReason,
    ReplyFormat,
    TextDelta,
    ThoughtDelta,
)


class Reader:
    """Feed it a reply's text in any pieces; their deltas, joined, are the same for all cuts.

    opened: the prompt ends inside a thinking block.
    """

    def __init__(self, reply_format: ReplyFormat, offered: Offered, *, opened: bool = False):
        self.calls = 0  # that were begun
        self._complete = 0  # of them
        self._offered = offered
        whole = reply_format.thinking == HARMONY.name
        offers = offered if reply_format.tools else {}
        self._harmony = HarmonyReply("", offers, 0, opened=opened) if whole else None
        self._markers = marker_sets_for(reply_format, bool(offered))
        self._thinking = opened and bool(self._markers.ends)
        self._newline = self._thinking  # one may follow that is not part of the thoughts
        self._pause = ""  # a newline of thoughts that the ending drops
        self._quiet = bool(self._markers.first.markers)  # nothing was said since thoughts or a call
        self._fresh = False  # white space that comes is layout
        self._space = ""  # white space that is dropped if a call follows
        self._left = ""  # fed, and not read yet
        self._section: CallSection | None = None
        self._tried: str | None = None  # what it was fed while another format may be tried
        self._draft: DraftCall | None = None
        self._ended = False
        self._out: list[Delta] = []

    def feed(self, text: str) -> list[Delta]:
        if self._harmony:
            return self._counted(self._harmony.feed(text)) if text else []
        self._left += text
        while self._left and self._step():
            pass
        return self._taken()

    def finish(self) -> list[Delta]:
        """No more text comes."""
        if self._harmony:
            return self._counted(self._harmony.finish())
        self._ended = True
        while self._left or self._section or self._draft:
            self._step()
        if self._thinking:
            self._put(ThoughtDelta(self._pause))
        elif not self._fresh and not (self._quiet and self.calls):
            self._put(TextDelta(self._space))
        return self._taken()

    def reason(self, finish: FinishReason) -> FinishReason:
        """Why the reply ended, as an API tells it: with calls, that it made calls."""
        return "tool_calls" if finish == "stop" and self._complete else finish

    def _step(self) -> bool:
        """Reads some of what is left; False if that takes more text."""
        if self._section:
            return self._read_section(self._section)
        if self._draft:
            return self._read_draft(self._draft)
        if self._thinking:
            return self._read_thoughts()
        return self._read_start() if self._quiet else self._read_text()

    # -- text --

    def _read_start(self) -> bool:
        """Where nothing was said: white space, and then a marker or text."""
        words = self._left.lstrip()
        if not self._fresh:
            self._space += self._left[: len(self._left) - len(words)]
        self._left = words
        marker = self._markers.first.here(words, ended=self._ended) if words else None
        if marker:
            self._enter(marker)
        self._quiet = self._quiet and marker != ""
        return marker is not None

    def _read_text(self) -> bool:
        at, marker = self._markers.later.find(self._left, ended=self._ended)
        self._put_text(self._left[:at])
        self._left = self._left[at:]
        if marker:
            self._enter(marker)
        return bool(marker)

    def _put_text(self, text: str) -> None:
        text = text.lstrip() if self._fresh else text
        if not text:
            return
        self._fresh = self._quiet = False
        text = self._space + text
        words = text.rstrip() if self._markers.formats else text
        self._space = text[len(words) :]
        self._put(TextDelta(words))

    def _enter(self, marker: str) -> None:
        """A marker that was found at the beginning of what is left."""
        self._left = self._left[len(marker) :]
        if marker in self._markers.begins:
            self._thinking = self._newline = True
            self._space = "" if self._quiet else self._space
        elif format := self._markers.format(marker):
            self._section = format.section(marker, self._offered, self.calls)
            again = format is not GENERIC and marker in GENERIC.starts
            self._tried = "" if again else None
        elif marker not in self._markers.dropped:  # it only says that text comes
            self._fresh = True
            self._space = "" if self._quiet else self._space

    # -- calls --

    def _read_section(self, section: CallSection) -> bool:
        text, self._left = self._left, ""
        deltas = section.feed(text) if text else []
        if self._ended and not section.done:
            deltas += section.finish()
        if self._tried is not None:
            self._tried += text
            if deltas and isinstance(deltas[0], TextDelta):
                self._section = GENERIC.section(section.start, self._offered, self.calls)
                self._left, self._tried = self._tried, None
                return True
            self._tried = None if deltas else self._tried
        for delta in deltas:
            self._put_delta_of_call(delta)
        if section.done or self._ended:
            self._section, self._left = None, section.rest
        return True

    def _put_delta_of_call(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._put_text(delta.text)
            return
        if isinstance(delta, CallBegin):
            self._space, self._fresh, self._quiet = "", False, True
        self._counted([delta])
        self._put(delta)

    def _counted(self, deltas: list[Delta]) -> list[Delta]:
        for delta in deltas:
            self.calls += isinstance(delta, CallBegin)
            self._complete += isinstance(delta, CallEnd) and delta.complete
        return deltas

    # -- thoughts --

    def _read_thoughts(self) -> bool:
        at, marker = self._markers.inside.find(self._left, ended=self._ended)
        self._put_thoughts(self._left[:at])
        self._left = self._left[at:]
        if not marker:
            return False
        if marker in self._markers.ends:
            self._left = self._left[len(marker) :]
            self._end_thoughts()
        elif marker in self._markers.certain:
            self._end_thoughts()
            self._enter(marker)
        else:
            self._left = self._left[len(marker) :]
            format = self._markers.format(marker)
            if format and not self._ended:
                self._draft = DraftCall(format, marker, self._offered, self.calls)
            elif format:
                self._put_thoughts(marker)
        return True

    def _put_thoughts(self, text: str) -> None:
        if not text:
            return
        text = text[1:] if self._newline and text[0] == "\n" else text
        self._newline = False
        text = self._pause + text
        self._pause = "\n" if text.endswith("\n") else ""
        self._put(ThoughtDelta(text[: len(text) - len(self._pause)]))

    def _end_thoughts(self) -> None:
        self._thinking, self._pause = False, ""
        self._quiet = self._fresh = True

    def _read_draft(self, draft: DraftCall) -> bool:
        text, self._left = self._left, ""
        meant = draft.feed(text) and (not self._ended or draft.finish())
        if meant and not self._ended:
            return True
        self._draft = None
        if meant:
            self._end_thoughts()
            for delta in draft.deltas:
                self._put_delta_of_call(delta)
        else:
            self._put_thoughts(draft.marker)
            self._left = draft.raw
        return True

    # -- deltas --

    def _put(self, delta: Delta) -> None:
        """Joins what belongs together, and leaves out what says nothing."""
        last = self._out[-1] if self._out else None
        if isinstance(delta, TextDelta):
            if isinstance(last, TextDelta):
                self._out[-1] = TextDelta(last.text + delta.text)
            elif delta.text:
                self._out.append(delta)
        elif isinstance(delta, ThoughtDelta):
            if isinstance(last, ThoughtDelta):
                self._out[-1] = ThoughtDelta(last.text + delta.text)
            elif delta.text:
                self._out.append(delta)
        elif isinstance(delta, CallPart) and isinstance(last, CallPart):
            self._out[-1] = CallPart(last.index, last.json + delta.json)
        else:
            self._out.append(delta)

    def _taken(self) -> list[Delta]:
        taken, self._out = self._out, []
        return taken
