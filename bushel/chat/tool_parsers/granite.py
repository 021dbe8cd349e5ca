"""Granite 3 and Granite function calling: objects behind a marker, with no end.

    <|tool_call|>[{"name": "read", "arguments": {"path": "a.txt"}}]
    <function_call> {"name": "read", "arguments": {"path": "a.txt"}}

Granite 4 writes calls as Hermes does.
"""

from __future__ import annotations

from bushel.chat.tool_parsers.objects import ObjectsFormat


class Granite(ObjectsFormat):
    name = "granite"
    starts = ("<|tool_call|>", "<function_call>", "<tool_call>")
    ends = ("<|/tool_call|>", "</tool_call>", "</function_call>")
    signs = ("<|tool_call|>", "<function_call>")
    markup = ends
