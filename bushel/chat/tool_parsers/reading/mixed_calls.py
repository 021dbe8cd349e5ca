"""Calls in the forms that many models share, and mix up.

Behind any of the markers may stand JSON objects, `<function=…>` elements or Python calls; what
comes first says which.
"""

from __future__ import annotations

from collections.abc import Generator

from bushel.chat.tool_parsers.reading.function_elements import FUNCTION, Functions
from bushel.chat.tool_parsers.reading.json_objects import Objects
from bushel.chat.tool_parsers.reading.python_calls import Expressions

# Markers around calls, and what ends them.
TAGS = {
    "<tool_call>": "</tool_call>",
    "<seed:tool_call>": "</seed:tool_call>",
    "<tool_calls>": "</tool_calls>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|python_tag|>": "",
}
BARE = ("{", "[")
_FENCE = "```"


class MixedCalls(Objects, Functions, Expressions):
    """One or more calls behind a tag, or behind nothing (`BARE`) where a reply begins.

    A bare call is one only if it says all that a call has to say (`Objects.object`).
    """

    def read(self) -> Generator[None]:
        end = TAGS.get(self.start, "")
        bare = self.start in BARE
        if self.start == FUNCTION:
            yield from self.function()
            return
        marker = self.start if bare else (yield from self._open())
        listed = marker == "["
        if listed:
            marker = yield from self.maybe("{")
        yield from self._call(marker, bare, end)
        while True:
            # Commas and brackets belong to lists, semicolons stand between Llama's objects.
            marks = (",", "]") if listed else (";",)
            marker = yield from self.maybe("{", FUNCTION, _FENCE, *marks, *([end] if end else ()))
            if marker in (end, "") or (bare and marker == "]"):
                return
            if marker == "]":
                listed = False
            elif marker == ",":
                yield from self._call((yield from self.maybe("{")), bare, end)
            elif marker in ("{", FUNCTION):
                yield from self._call(marker, bare, end)

    def _open(self) -> Generator[None, None, str]:
        """What stands behind a tag: a mark that was read, or "" where an expression begins."""
        if (yield from self.maybe(_FENCE)):
            yield from self.maybe("python", "json")
        return (yield from self.maybe("{", "[", FUNCTION))

    def _call(self, marker: str, bare: bool, end: str) -> Generator[None]:
        if marker == "{":
            yield from self.object(bare=bare)
        elif marker == FUNCTION:
            yield from self.function(*([end] if end else ()))
        else:
            yield from self.peek()
            yield from self.expression()
