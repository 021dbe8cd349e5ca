"""GLM 4.5 and later, and models that write calls like it.

    <tool_call>read
    <arg_key>path</arg_key>
    <arg_value>a.txt</arg_value>
    </tool_call>

The newlines are optional, and strings are not quoted.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import ClassVar

from bushel.chat.tool_parsers.pairs import Pairs
from bushel.chat.tool_parsers.parse import NoCall
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat


class GlmSection(Pairs):
    def __init__(self, tags: tuple[str, str], start: str, offered: Offered, first: int):
        """tags: what their names begin and end with."""
        before, after = tags
        self.calls_end = f"</{before}tool_calls{after}>"
        self.call = f"<{before}tool_call{after}>"
        self.call_end = f"</{before}tool_call{after}>"
        self.separator = f"<{before}tool_sep{after}>"
        self.key, self.key_end = f"<{before}arg_key{after}>", f"</{before}arg_key{after}>"
        self.value_start = f"<{before}arg_value{after}>"
        self.value_end = f"</{before}arg_value{after}>"
        super().__init__(start, offered, first)

    def read(self) -> Generator[None]:
        if self.start != self.call:
            yield from self.meet(self.call)
        while True:
            yield from self._call()
            marker = yield from self.maybe(self.call, self.calls_end)
            if marker != self.call:
                return

    def _call(self) -> Generator[None]:
        name, marker = yield from self.until(self.separator, self.key, self.call_end)
        if not name.strip():
            raise NoCall
        self.name(name)
        self.begin()
        if marker == self.separator:
            marker = yield from self.meet(self.key, self.call_end)
        while marker == self.key:
            key, _ = yield from self.until(self.key_end)
            yield from self.meet(self.value_start)
            yield from self.argument(key.strip(), self.value_end)
            marker = yield from self.meet(self.key, self.call_end)
        self.close()


def _markup(before: str, after: str) -> tuple[str, ...]:
    names = ("tool_calls", "tool_call", "arg_key", "arg_value")
    tags = (f"{slash}{before}{name}{after}" for name in names for slash in ("", "/"))
    return (f"<{before}tool_sep{after}>", *(f"<{tag}>" for tag in tags))


class Glm(ToolFormat):
    name = "glm"
    starts: ClassVar[tuple[str, ...]] = ("<tool_call>",)
    signs: ClassVar[tuple[str, ...]] = ("<arg_key>",)
    markup: ClassVar[tuple[str, ...]] = _markup("", "")
    tags: ClassVar[tuple[str, str]] = ("", "")

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return GlmSection(self.tags, start, offered, first)


class Longcat(Glm):
    name = "longcat"
    starts = ("<longcat_tool_call>",)
    signs = ("<longcat_arg_key>",)
    markup = _markup("longcat_", "")
    tags = ("longcat_", "")


class Hunyuan(Glm):
    """Hy3: calls stand inside `<tool_calls:opensource>`, and the name ends with a separator."""

    name = "hunyuan"
    starts = ("<tool_calls:opensource>", "<tool_call:opensource>")
    signs = ("<tool_sep{}>", "<tool_sep:opensource>")
    markup = _markup("", ":opensource")
    tags = ("", ":opensource")
