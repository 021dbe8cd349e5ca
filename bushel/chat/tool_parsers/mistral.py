"""Mistral: a list of objects, or a name and its arguments for each marker.

[TOOL_CALLS][{"name": "read", "arguments": {"path": "a.txt"}, "id": "abc"}]
[TOOL_CALLS]read[CALL_ID]abc[ARGS]{"path": "a.txt"}[TOOL_CALLS]write[ARGS]{…}
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from bushel.chat.structured_output.lark import Lark
from bushel.chat.tool_parsers.grammar.call_form import CallForm, Knows, ToolGrammar
from bushel.chat.tool_parsers.grammar.object_calls import around_arguments, object_list
from bushel.chat.tool_parsers.reading.json_objects import Objects
from bushel.chat.tool_parsers.tool_format import BY_TEMPLATE, Detection, ToolFormat

_CALLS, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


class MistralSection(Objects):
    def read(self) -> Generator[None]:
        if (yield from self.peek()) in "[{":
            yield from self.objects()
            return
        more = _CALLS
        while more:
            yield from self._named_call()
            more = yield from self.maybe(_CALLS)

    def _named_call(self) -> Generator[None]:
        name, marker = yield from self.until(_ID, _ARGUMENTS, "{")
        self.name(name)
        if marker == _ID:
            _, marker = yield from self.until(_ARGUMENTS, "{")
        if marker == "{":
            self.back(marker)
        yield from self.arguments(_CALLS)
        self.end()


def _grammar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    if not knows(_ARGUMENTS):
        return object_list(_CALLS, "")(lark, tools, knows)
    return CallForm(around_arguments(lark, tools, f"NAME{_ARGUMENTS}"), open=_CALLS)


MISTRAL = ToolFormat(
    name="mistral",
    detect=Detection(signs=(_CALLS,), model_types=("mistral", "mistral3", "ministral3")),
    starts=(_CALLS,),
    section=MistralSection,
    grammar=_grammar,
    history=BY_TEMPLATE,
    markup=(_ID, _ARGUMENTS),
)
