"""Solar, which writes calls like Kimi K2 with other markers.

    <|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>read
    <|tool_call:args|>{"path": "a.txt"}<|tool_call:end|><|calls|>

The newline is only here.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import around_arguments
from bushel.chat.tool_parsers.reading.parser import Listed
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_CALLS, _CALLS_END = "<|tool_calls|>", "<|calls|>"
_CALL, _CALL_END = "<|tool_call:begin|>", "<|tool_call:end|>"
_NAME, _ARGUMENTS = "<|tool_call:name|>", "<|tool_call:args|>"


class SolarSection(Listed):
    calls, calls_end, call = _CALLS, _CALLS_END, _CALL
    between = (_CALL_END,)

    def one(self) -> Generator[None]:
        yield from self.until(_NAME)
        name, _ = yield from self.until(_ARGUMENTS)
        self.name(name)
        yield from self.arguments(_CALL_END)
        self.end()


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = around_arguments(lark, tools, f"{_NAME}NAME{_ARGUMENTS}")
    return CallForm(
        [f"/[a-z0-9]{{10}}/ {body}" for body in bodies], begin=_CALLS, open=_CALL, close=_CALL_END
    )


SOLAR = ToolFormat(
    name="solar",
    detect=Detection(signs=(_CALL,)),
    starts=(_CALLS, _CALL),
    section=SolarSection,
    grammar=_grammar,
    history=BY_TEMPLATE,
    markup=(_CALLS_END, _CALL_END, _NAME, _ARGUMENTS),
)
