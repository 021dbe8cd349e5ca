"""DeepSeek, in its three forms.

    V3, R1       <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read
                 ```json
                 {"path": "a.txt"}
                 ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
    V3.1         …<｜tool▁call▁begin｜>read<｜tool▁sep｜>{"path": "a.txt"}<｜tool▁call▁end｜>…
    V3.2 and V4  elements (invoke.py) whose names begin with ｜DSML｜

The bars are wide ones.
"""

# ruff: noqa: RUF001

from __future__ import annotations

from collections.abc import Generator

from bushel.chat.tool_parsers.invoke import Elements, InvokeFormat
from bushel.chat.tool_parsers.parse import Listed
from bushel.chat.tool_parsers.tool_format import CallSection, Offered, ToolFormat

_CALLS, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_CALL, _CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_SEPARATOR, _FENCE = "<｜tool▁sep｜>", "```"


class DeepSeekSection(Listed):
    calls, calls_end, call = _CALLS, _CALLS_END, _CALL
    between = (_FENCE, _CALL_END)

    def one(self) -> Generator[None]:
        name, _ = yield from self.until(_SEPARATOR)
        self.name(name)
        if (yield from self.peek()) not in "{<":
            # The first word is the kind of tool.
            name, marker = yield from self.until("\n", _FENCE, "{", _CALL_END)
            self.name(name)
            if marker != "\n":
                self.back(marker)
            if (yield from self.maybe(_FENCE)):
                yield from self.until("\n")
        yield from self.arguments(_FENCE, _CALL_END)
        self.end()


class DeepSeek(ToolFormat):
    name = "deepseek"
    starts = (_CALLS, _CALL)
    signs = (_CALL, _CALLS)
    markup = (_CALLS_END, _CALL_END, _SEPARATOR)

    def section(self, start: str, offered: Offered, first: int) -> CallSection:
        return DeepSeekSection(start, offered, first)


class Dsml(InvokeFormat):
    name = "dsml"
    starts = ("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<｜DSML｜invoke")
    signs = ("｜DSML｜",)
    markup = ("｜DSML｜",)
    elements = Elements(
        around=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
        around_end=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
        call="<｜DSML｜invoke",
        call_end="</｜DSML｜invoke>",
        argument="<｜DSML｜parameter",
        argument_end="</｜DSML｜parameter>",
    )
