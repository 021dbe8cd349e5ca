"""Looking for markers in text that is still coming."""

from __future__ import annotations

import re
from collections.abc import Iterable


def held(text: str, markers: Iterable[str]) -> int:
    """Characters at the end of `text` that may be the beginning of a marker."""
    longest = 0
    for marker in markers:
        for size in range(min(len(marker) - 1, len(text)), longest, -1):
            if marker.startswith(text[-size:]):
                longest = size
                break
    return longest


def first(text: str, markers: Iterable[str]) -> tuple[int, str]:
    """Where the first marker is, and which; "" if there is none."""
    places = ((text.find(marker), -len(marker), marker) for marker in markers)
    at, _, marker = min((place for place in places if place[0] >= 0), default=(-1, 0, ""))
    return at, marker


class MarkerWatch:
    """Finds the first of some markers; of two at one place, the longer one (B28).

    Text that has no marker is searched twice by compiled patterns, and by nothing else.
    """

    def __init__(self, markers: Iterable[str]):
        self.markers = tuple(sorted(set(markers), key=lambda marker: (-len(marker), marker)))
        self._pattern = re.compile("|".join(map(re.escape, self.markers)))
        firsts = "".join(sorted({re.escape(marker[0]) for marker in self.markers}))
        self._firsts = re.compile(f"[{firsts}]") if firsts else None
        self._reach = max(map(len, self.markers), default=1) - 1

    def find(self, text: str, *, ended: bool) -> tuple[int, str]:
        """Where the first marker is, and which one.

        Without one, the place is where text may begin that could become one, and the marker is
        empty. ended: nothing more comes, so nothing can become one.
        """
        if self._firsts is None:
            return len(text), ""
        match = self._pattern.search(text)
        at = match.start() if match else len(text)
        if not ended and self._firsts.search(text, max(0, len(text) - self._reach)):
            # One that is not complete yet counts too, if it began before or is longer.
            pending = len(text) - held(text, self.markers)
            if pending < len(text) and pending <= at:
                return pending, ""
        return at, match.group() if match else ""

    def here(self, text: str, *, ended: bool) -> str | None:
        """The marker that the text begins with; "": none; None: it may become one."""
        match = self._pattern.match(text) if self.markers else None
        if not ended and self._longer(text, match.group() if match else ""):
            return None
        return match.group() if match else ""

    def _longer(self, text: str, marker: str) -> bool:
        """Whether the text may become a marker that is longer than the one it begins with."""
        size = len(text)
        return any(
            len(other) > max(size, len(marker)) and other.startswith(text) for other in self.markers
        )
