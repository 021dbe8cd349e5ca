"""GLM 4.5 and later, and models that write calls like it.

    <tool_call>read
    <arg_key>path</arg_key>
    <arg_value>a.txt</arg_value>
    </tool_call>

The newlines are optional, and strings are not quoted.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from bushel.chat.tool_parsers.grammar.call_form import CallGrammar
from bushel.chat.tool_parsers.grammar.element_calls import Tags, elements
from bushel.chat.tool_parsers.reading.key_values import Pairs
from bushel.chat.tool_parsers.reading.parser import NoCall
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, Offered, ToolFormat


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


def _grammar(
    before: str, after: str, begin: str = "", end: str = "", separator: str = ""
) -> CallGrammar:
    """before, after: what the tags' names begin and end with."""

    def tag(name: str, slash: str = "") -> str:
        return f"<{slash}{before}{name}{after}>"

    value = tag("arg_value")
    return elements(
        Tags(f"{tag('arg_key')}KEY{tag('arg_key', '/')}\n{value}", f"{tag('arg_value', '/')}\n"),
        f"NAME{separator}\n",
        "",
        begin=begin,
        open=tag("tool_call"),
        close=tag("tool_call", "/"),
        between="\n",
        end=end,
    )


GLM = ToolFormat(
    name="glm",
    detect=Detection(signs=("<arg_key>",)),
    starts=("<tool_call>",),
    section=partial(GlmSection, ("", "")),
    grammar=_grammar("", ""),
    history=BY_TEMPLATE,
    markup=_markup("", ""),
)

LONGCAT = ToolFormat(
    name="longcat",
    detect=Detection(signs=("<longcat_arg_key>",)),
    starts=("<longcat_tool_call>",),
    section=partial(GlmSection, ("longcat_", "")),
    grammar=_grammar("longcat_", ""),
    history=BY_TEMPLATE,
    markup=_markup("longcat_", ""),
)

# Hy3: calls stand inside `<tool_calls:opensource>`, and the name ends with a separator.
HUNYUAN = ToolFormat(
    name="hunyuan",
    detect=Detection(signs=("<tool_sep{}>", "<tool_sep:opensource>")),
    starts=("<tool_calls:opensource>", "<tool_call:opensource>"),
    section=partial(GlmSection, ("", ":opensource")),
    grammar=_grammar(
        "",
        ":opensource",
        "<tool_calls:opensource>\n",
        "\n</tool_calls:opensource>",
        "<tool_sep:opensource>",
    ),
    history=BY_TEMPLATE,
    markup=_markup("", ":opensource"),
)
