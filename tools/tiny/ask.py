"""What questions written by hand are made of: pictures, tools and conversations.

Pictures are drawn by hand (`tests.drawings`), not by the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests import drawings
from tools.tiny.chat import Check, Talk
from tools.tiny.scene import COLOUR_NAMES, Picture


def row(what: str, colour: str, count: int, size: tuple[int, int] = (220, 120)) -> Picture:
    return Picture(drawings.row(what, colour, count, size), [])


def pair(colours: tuple[str, str]) -> Picture:
    return Picture(drawings.pair(colours), [])


def see(what: str, colour: str = "black", *more: Any, **named: Any) -> Picture:
    return Picture(drawings.see(what, colour, *more, **named), [])


@dataclass
class Question:
    asked: str
    check: Check
    pictures: Sequence[Picture] = ()
    system: str = ""
    before: Sequence[tuple[str, str]] = ()
    tools: Sequence[dict[str, Any]] = ()
    thinking: bool = False
    results: Sequence[tuple[dict[str, Any], str]] = field(default_factory=tuple)

    def talk(self) -> Talk:
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": self.system})
        for user, assistant in self.before:
            messages.append({"role": "user", "content": user})
            messages.append({"role": "assistant", "content": assistant})
        content: Any = self.asked
        if self.pictures:
            images = [{"type": "image", "image": picture} for picture in self.pictures]
            content = [*images, {"type": "text", "text": self.asked}]
        messages.append({"role": "user", "content": content})
        for call, result in self.results:
            calls = [{"id": "call_0", "type": "function", "function": call}]
            messages.append({"role": "assistant", "content": "", "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": "call_0", "content": result})
        messages.append({"role": "assistant", "content": ""})
        return Talk("hand", messages, self.check, list(self.tools) or None, self.thinking)


def says(*words: str) -> Check:
    return Check("says", list(words))


def ends(colour: str) -> Check:
    """Of all colours in the reply, the last: it may name those of other things before."""
    return Check("last", [colour, *COLOUR_NAMES])


def any_of(*words: str) -> Check:
    return Check("any", list(words))


def number(value: int) -> Check:
    return Check("number", str(value))


def calls(name: str, **arguments: Any) -> Check:
    return Check("calls", [{"name": name, "arguments": arguments}])


def tool(name: str, about: str, **properties: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            key: {"type": kind} if isinstance(kind, str) else kind
            for key, kind in properties.items()
        },
        "required": list(properties),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": schema},
    }


WEATHER = tool("get_weather", "Current weather for a given city", city="string")
PIZZA = tool("order_pizza", "Order a pizza to an address", topping="string", count="integer")
LIGHT = tool("set_lamp", "Turn a lamp on or off", lamp="string", on="boolean")
NOTE = tool("save_note", "Store a note for later", text="string")
SUM = tool("add", "Add two numbers and return the sum", a="number", b="number")
STOCK = tool("stock_quote", "Latest price of a share", symbol="string")
READ = tool("read_file", "Read a file from disk", path="string")
TRAIN = tool("find_train", "Find a train connection", origin="string", destination="string")
TAXI = tool("call_taxi", "Send a taxi to a street", street="string", passengers="integer")
EVENT = tool("create_event", "Create an event in the calendar", title="string", day="string")
YES, NO = Check("yes", True), Check("yes", False)
NO_CALL = Check("no_call")
