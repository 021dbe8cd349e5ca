"""Calls whose arguments are a JSON object."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bushel.chat.structured_output.call_form import CallForm, ToolGrammar, Write
from bushel.chat.structured_output.lark import Lark, quoted

Knows = Callable[[str], bool]

# DeepSeek's bars are wide ones.
_CALLS, _CALL, _SEP = "<｜tool▁calls▁{}｜>", "<｜tool▁call▁{}｜>", "<｜tool▁sep｜>"  # noqa: RUF001


def arguments(lark: Lark, tool: ToolGrammar) -> str:
    schema = tool.schema if "type" in tool.schema else {"type": "object", **tool.schema}
    return lark.json(schema, exact=tool.exact)


def around(lark: Lark, tools: Sequence[ToolGrammar], before: str, after: str = "") -> list[str]:
    """Bodies with fixed text on both sides; NAME in it is the tool's name."""
    return [
        f"{lark.mark(before.replace('NAME', tool.name))} {arguments(lark, tool)} {lark.mark(after)}"
        for tool in tools
    ]


def named(lark: Lark, tools: Sequence[ToolGrammar], key: str) -> list[str]:
    """{"name": "read", "arguments": {…}}"""
    return around(lark, tools, f'{{"name": "NAME", "{key}": ', "}")


def alone(open: str, close: str, between: str = "", key: str = "arguments") -> Write:
    """Each call between markers of its own."""

    def write(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        bodies = named(lark, tools, key)
        return CallForm(bodies, open=open, close=close, between=between, single=not between)

    return write


def listed(begin: str, end: str, key: str = "arguments") -> Write:
    """All calls in one list."""

    def write(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
        return CallForm(named(lark, tools, key), begin=f"{begin}[", between=", ", end=f"]{end}")

    return write


def granite(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    if knows("<function_call>") and not knows("<|tool_call|>"):
        return alone("<function_call> ", "", "\n")(lark, tools, knows)
    return listed("<|tool_call|>", "")(lark, tools, knows)


def tool_calls(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    if knows("<tool_calls>[") or not knows("<tool_calls>\n"):
        return listed("<tool_calls>", "</tool_calls>")(lark, tools, knows)
    bodies = named(lark, tools, "arguments")
    return CallForm(bodies, begin="<tool_calls>\n", between="\n", end="\n</tool_calls>")


def cohere(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    rest = '"tool_name": "NAME", "parameters": '
    if not knows("<|START_ACTION|>"):
        bodies = around(lark, tools, f"{{{rest}", "}")
        return CallForm(bodies, begin="Action:\n```json\n[", between=",\n", end="]```")
    counted = quoted('{"tool_call_id": "') + " /[0-9]{1,3}/"
    bodies = [f"{counted} {body}" for body in around(lark, tools, f'", {rest}', "}")]
    return CallForm(bodies, begin="<|START_ACTION|>[", between=",\n", end="]<|END_ACTION|>")


def apertus(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = around(lark, tools, '{"NAME": ', "}")
    return CallForm(bodies, begin="<|tools_prefix|>[", between=", ", end="]<|tools_suffix|>")


def mistral(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    if not knows("[ARGS]"):
        return listed("[TOOL_CALLS]", "")(lark, tools, knows)
    return CallForm(around(lark, tools, "NAME[ARGS]"), open="[TOOL_CALLS]")


def deepseek(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    fenced = knows("```json")
    before = f"function{_SEP}NAME\n```json\n" if fenced else f"NAME{_SEP}"
    return CallForm(
        around(lark, tools, before, "\n```" if fenced else ""),
        begin=_CALLS.format("begin"),
        open=_CALL.format("begin"),
        close=_CALL.format("end"),
        between="\n" if fenced else "",
        end=_CALLS.format("end"),
    )


def kimi(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = [
        f"{quoted(f'functions.{tool.name}:')} /[0-9]{{1,3}}/ "
        f"{lark.mark('<|tool_call_argument_begin|>')} {arguments(lark, tool)}"
        for tool in tools
    ]
    return CallForm(
        bodies,
        begin="<|tool_calls_section_begin|>",
        open="<|tool_call_begin|>",
        close="<|tool_call_end|>",
        end="<|tool_calls_section_end|>",
    )


def solar(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = around(lark, tools, "<|tool_call:name|>NAME<|tool_call:args|>")
    return CallForm(
        [f"/[a-z0-9]{{10}}/ {body}" for body in bodies],
        begin="<|tool_calls|>",
        open="<|tool_call:begin|>",
        close="<|tool_call:end|>",
    )


def llama(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    return CallForm(named(lark, tools, "parameters"), between="; ", leading=True)


def harmony(lark: Lark, tools: Sequence[ToolGrammar], knows: Knows) -> CallForm:
    bodies = around(lark, tools, "to=functions.NAME <|constrain|>json<|message|>")
    return CallForm(bodies, open="<|channel|>commentary ", single=True)
