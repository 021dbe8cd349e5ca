"""MiniMax M2, whose calls are elements, and M3, whose arguments are nested ones.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="read">]<]minimax[>[<paths>
    ]<]minimax[>[<item>a.txt]<]minimax[>[</item>]<]minimax[>[</paths>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

An argument's elements are `item`s of an array, or named after an object's keys.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import Any

from bushel.chat.tool_parsers.grammar.element_calls import Tags, elements
from bushel.chat.tool_parsers.reading.argument_values import (
    as_json,
    escaped,
    is_text,
    kinds,
    parameter,
)
from bushel.chat.tool_parsers.reading.invoke_elements import (
    InvokeSection,
    InvokeTags,
    invoke_section,
)
from bushel.chat.tool_parsers.reading.parser import NoCall
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_MARK = "]<]minimax[>["
_DEEPEST = 64  # levels; a reply that repeats itself may nest without end
Schema = Mapping[str, Any] | None


_CALLS, _CALLS_END = "<minimax:tool_call>", "</minimax:tool_call>"
MINIMAX = ToolFormat(
    name="minimax",
    detect=Detection(signs=(_CALLS,)),
    starts=(_CALLS,),
    section=invoke_section(
        InvokeTags(
            around=(_CALLS,),
            around_end=(_CALLS_END,),
            call="<invoke",
            call_end="</invoke>",
            argument="<parameter",
            argument_end="</parameter>",
        )
    ),
    grammar=elements(
        Tags('<parameter name="KEY">', "</parameter>\n"),
        '<invoke name="NAME">\n',
        "</invoke>\n",
        begin=f"{_CALLS}\n",
        end=_CALLS_END,
    ),
    history=BY_TEMPLATE,
    markup=(_CALLS_END,),
)


class MiniMax3Section(InvokeSection):
    def _call(self) -> Generator[None]:
        self.name((yield from self.attributes())["name"])
        self.begin()
        schema = self.offered.get(self._named)
        self.part("{")
        comma = ""
        yield from self.meet(_MARK)
        while (tag := (yield from self._tag())) != "/invoke":
            self.part(f'{comma}"{escaped(tag)}": ')
            yield from self._element(tag, parameter(schema, tag), 0)
            yield from self.meet(_MARK)
            comma = ", "
        self.part("}")
        self.whole = True
        self.end()

    def _tag(self) -> Generator[None, None, str]:
        yield from self.meet("<")
        name, _ = yield from self.until(">")
        return name

    def _element(self, tag: str, schema: Schema, depth: int) -> Generator[None]:
        """Its value, to the end of the element."""
        if is_text(schema):
            yield from self.words(schema, f"{_MARK}</{tag}>")
            return
        if depth > _DEEPEST:
            raise NoCall
        self._collected = []
        yield from self.pour(self._collect, _MARK)
        inner = yield from self._tag()
        if inner == f"/{tag}":
            self.part(_leaf("".join(self._collected), schema))
            return
        if "".join(self._collected).strip():
            raise NoCall
        allowed = kinds(schema)
        array = inner == "item" and ("array" in allowed or "object" not in allowed)
        self.part("[" if array else "{")
        comma = ""
        while inner != f"/{tag}":
            if inner.startswith("/"):
                raise NoCall
            self.part(comma if array else f'{comma}"{escaped(inner)}": ')
            below = _items(schema) if array else parameter(schema, inner)
            yield from self._element(inner, below, depth + 1)
            yield from self.meet(_MARK)
            inner = yield from self._tag()
            comma = ", "
        self.part("]" if array else "}")


def _items(schema: Schema) -> Schema:
    items = schema.get("items") if schema else None
    return items if isinstance(items, Mapping) else None


def _leaf(text: str, schema: Schema) -> str:
    """What has nothing inside may be an empty array or object."""
    allowed = kinds(schema)
    if not text.strip() and "string" not in allowed:
        return "[]" if "array" in allowed else "{}" if "object" in allowed else "null"
    return as_json(text, schema)


MINIMAX3 = ToolFormat(
    name="minimax3",
    detect=Detection(signs=(_MARK,)),
    starts=(f"{_MARK}<tool_call>",),
    section=partial(
        MiniMax3Section,
        InvokeTags(
            around=(f"{_MARK}<tool_call>",),
            around_end=(f"{_MARK}</tool_call>",),
            call=f"{_MARK}<invoke",
            call_end=f"{_MARK}</invoke>",
            argument="",
            argument_end="",
        ),
    ),
    grammar=elements(
        Tags(f"{_MARK}<KEY>", f"{_MARK}</KEY>", (_MARK,)),
        f'{_MARK}<invoke name="NAME">',
        f"{_MARK}</invoke>\n",
        begin=f"{_MARK}<tool_call>\n",
        end=f"{_MARK}</tool_call>",
    ),
    history=BY_TEMPLATE,
    markup=(_MARK, "<tool_call>", "</tool_call>"),
)
