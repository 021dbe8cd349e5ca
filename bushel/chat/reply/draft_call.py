"""A call inside thoughts that did not end: meant if the reply ends with it, else a draft."""

from __future__ import annotations

from bushel.chat.tool_parsers.reading.marker_search import MarkerWatch
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat
from bushel.core.delta import CallEnd, Delta, TextDelta


class DraftCall:
    """Reads calls without telling anyone, as long as nothing but calls comes."""

    def __init__(self, format: ToolFormat, marker: str, offered: Offered, first: int):
        self.marker = marker
        self.raw = ""  # all that came behind it
        self.deltas: list[Delta] = []
        self._format = format
        self._starts = MarkerWatch(format.later_starts)
        self._offered = offered
        self._index = first
        self._section: CallSection | None = format.section(marker, offered, first)
        self._gap = ""  # between calls

    def feed(self, text: str) -> bool:
        """False: something else came, so that it is a draft."""
        self.raw += text
        left = text
        while left:
            if self._section:
                if not self._keep(self._section, self._section.feed(left)):
                    return False
                if not self._section.done:
                    return True
                left, self._section = self._section.rest, None
            else:
                left = (self._gap + left).lstrip()
                marker = self._starts.here(left, ended=False) if left else None
                self._gap = left
                if marker is None:
                    return True
                if not marker:
                    return False
                self._gap, left = "", left[len(marker) :]
                self._section = self._format.section(marker, self._offered, self._index)
        return True

    def finish(self) -> bool:
        """The reply ends here: whether it ends with calls that are complete."""
        if self._section and not self._keep(self._section, self._section.finish()):
            return False
        return bool(self.deltas) and not self._gap

    def _keep(self, section: CallSection, deltas: list[Delta]) -> bool:
        self.deltas += deltas
        self._index = section.index
        return not any(
            isinstance(delta, TextDelta) or (isinstance(delta, CallEnd) and not delta.complete)
            for delta in deltas
        )
