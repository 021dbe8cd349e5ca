"""How a model writes thoughts and calls: what is seen of it, unless someone knows better."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from bushel.chat.reply.format_detection import detect_formats
from bushel.core import ReplyFormat, RequestError
from bushel.core.options import ChatOptions
from bushel.models import Preparer
from bushel.text.tokenizer import Tokenizer

_NAME, _SAID = "look_up", "7f3a"
_ID = "a1b2c3d4e"  # of nine letters and digits, as some templates demand
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Looks up.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
}
_known: WeakKeyDictionary[Preparer, dict[ChatOptions, ReplyFormat]] = WeakKeyDictionary()


def reply_format_of(host: Preparer, chat_options: ChatOptions) -> ReplyFormat:
    """Found once. Raises BushelError for forms that do not exist."""
    styles = _known.setdefault(host, {})
    if chat_options not in styles:
        tokenizer = host.tokenizer
        with tokenizer.trial():
            shown = _call(tokenizer)
        styles[chat_options] = detect_formats(
            tokenizer.template,
            tokenizer.controls,
            host.config,
            shown=shown,
            tools=chat_options.tools,
            thinking=chat_options.thinking,
        )
    return styles[chat_options]


def _call(tokenizer: Tokenizer) -> str:
    """How the template writes a call; empty if it writes none. It may know several ways."""
    for arguments in ({"q": _SAID}, f'{{"q": "{_SAID}"}}'):
        function = {"name": _NAME, "arguments": arguments}
        call = {"id": _ID, "type": "function", "function": function}
        turns: list[dict[str, Any]] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": _ID, "name": _NAME, "content": "b"},
        ]
        try:
            text = tokenizer.render(turns, tools=[_TOOL], add_generation_prompt=False)
        except RequestError:
            continue
        if _NAME in text and _SAID in text:
            return text
    return ""
