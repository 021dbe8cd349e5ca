"""Complete calls read as mlx-lm's own parsers read them (B25)."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.chat.reply.sample_replies import EXAMPLES, TOOLS, Example, read

DECLARED = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in TOOLS.items()
]
PARSERS = {
    "hermes: one call": "json_tools",
    "hermes: escapes, braces and end markers in strings": "json_tools",
    "xml: values of every type": "qwen3_coder",
    "pythonic: two expressions": "pythonic",
    "pythonic: between markers, in both languages": "pythonic",
}


@pytest.mark.parametrize("example", [it for it in EXAMPLES if str(it) in PARSERS], ids=str)
def test_a_call_reads_as_another_parser_reads_it(example: Example) -> None:
    """Name and arguments are those that mlx-lm finds in the same reply. B25."""
    parser: Any = importlib.import_module(f"mlx_lm.tool_parsers.{PARSERS[str(example)]}")
    inside = example.reply.split(parser.tool_call_start)[-1]
    inside = inside.rpartition(parser.tool_call_end)[0] or inside
    theirs = parser.parse_tool_call(inside.strip(), DECLARED)
    ours = read(example.reader(), [example.reply]).calls
    expected = theirs if isinstance(theirs, list) else [theirs]
    assert [{"name": call.name, "arguments": call.arguments} for call in ours] == [
        {**call, "arguments": _lists(call["arguments"])} for call in expected
    ]


def _lists(value: Any) -> Any:
    """JSON has no tuples."""
    if isinstance(value, dict):
        return {key: _lists(inner) for key, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, (list, tuple)) else value
