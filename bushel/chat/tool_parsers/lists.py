"""Calls as JSON objects (objects.py) between markers, in a list or one after the other.

<TOOLCALL>[{"name": "read", "arguments": {"path": "a.txt"}}, …]</TOOLCALL>
<|tools_prefix|>[{"read": {"path": "a.txt"}}, …]<|tools_suffix|>
"""

from __future__ import annotations

from bushel.chat.tool_parsers.objects import ObjectsFormat


class Cohere(ObjectsFormat):
    """Command R7B and later; Command R+ writes a fenced block."""

    name = "cohere"
    starts = ("<|START_ACTION|>", "Action:\n```json", "Action: ```json")
    ends = ("<|END_ACTION|>", "```")
    signs = ("<|START_ACTION|>", "\\nAction:\\n```json")
    markup = ends


class Apertus(ObjectsFormat):
    """The calls' names are the objects' keys."""

    name = "apertus"
    starts = ("<|tools_prefix|>",)
    ends = ("<|tools_suffix|>",)
    by_name = True
    signs = ("<|tools_prefix|>",)
    markup = ends


class ToolCalls(ObjectsFormat):
    """Apriel and Hunyuan A13B; MiniMax M1, without a list."""

    name = "tool_calls"
    starts = ("<tool_calls>",)
    ends = ("</tool_calls>",)
    signs = ("<tool_calls>",)
    markup = ends


class Nemotron(ObjectsFormat):
    """Nemotron Nano 2."""

    name = "nemotron"
    starts = ("<TOOLCALL>",)
    ends = ("</TOOLCALL>",)
    signs = ("<TOOLCALL>",)
    markup = ends


class InternLm(ObjectsFormat):
    name = "internlm"
    starts = ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>")
    ends = ("<|action_end|>",)
    signs = ("<|action_start|>",)
    markup = ends


class GigaChat(ObjectsFormat):
    name = "gigachat"
    starts = ("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>")
    ends = ("<|message_sep|>",)
    signs = ("<|function_call|>", "'role': 'function call'")
    markup = ends


class Functools(ObjectsFormat):
    """Phi 4 mini."""

    name = "functools"
    starts = ("functools",)
    signs = ("functools[",)
