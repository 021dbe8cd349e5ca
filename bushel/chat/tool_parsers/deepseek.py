"""DeepSeek, in its three forms.

    V3, R1       <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read
                 ```json
                 {"path": "a.txt"}
                 ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
    V3.1         …<｜tool▁call▁begin｜>read<｜tool▁sep｜>{"path": "a.txt"}<｜tool▁call▁end｜>…
    V3.2 and V4  elements (`reading.invoke_elements`) whose names begin with ｜DSML｜

The bars are wide ones.
"""

# ruff: noqa: RUF001

from __future__ import annotations

from collections.abc import Generator, Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.element_calls import Tags, elements
from bushel.chat.tool_parsers.grammar.object_calls import around_arguments
from bushel.chat.tool_parsers.reading.invoke_elements import InvokeTags, invoke_section
from bushel.chat.tool_parsers.reading.parser import Listed
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

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


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    fenced = knows("```json")
    before = f"function{_SEPARATOR}NAME\n```json\n" if fenced else f"NAME{_SEPARATOR}"
    return CallForm(
        around_arguments(lark, tools, before, "\n```" if fenced else ""),
        begin=_CALLS,
        open=_CALL,
        close=_CALL_END,
        between="\n" if fenced else "",
        end=_CALLS_END,
    )


DEEPSEEK = ToolFormat(
    name="deepseek",
    detect=Detection(signs=(_CALL, _CALLS)),
    starts=(_CALLS, _CALL),
    section=DeepSeekSection,
    grammar=_grammar,
    history=BY_TEMPLATE,
    markup=(_CALLS_END, _CALL_END, _SEPARATOR),
)


_DSML = "｜DSML｜"
_DSML_CALLS = (f"{_DSML}function_calls", f"{_DSML}tool_calls")


def _dsml_grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    older, newer = _DSML_CALLS
    calls = newer if knows(newer) else older
    return elements(
        Tags(f'<{_DSML}parameter name="KEY" string="TEXT">', f"</{_DSML}parameter>\n"),
        f'<{_DSML}invoke name="NAME">\n',
        f"</{_DSML}invoke>\n",
        begin=f"<{calls}>\n",
        end=f"</{calls}>",
    )(lark, tools, knows)


DSML = ToolFormat(
    name="dsml",
    detect=Detection(signs=(_DSML,), model_types=("deepseek_v32",)),
    starts=(*(f"<{calls}>" for calls in _DSML_CALLS), f"<{_DSML}invoke"),
    section=invoke_section(
        InvokeTags(
            around=tuple(f"<{calls}>" for calls in _DSML_CALLS),
            around_end=tuple(f"</{calls}>" for calls in _DSML_CALLS),
            call=f"<{_DSML}invoke",
            call_end=f"</{_DSML}invoke>",
            argument=f"<{_DSML}parameter",
            argument_end=f"</{_DSML}parameter>",
        )
    ),
    grammar=_dsml_grammar,
    history=BY_TEMPLATE,
    markup=(_DSML,),
)
