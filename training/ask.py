"""What questions written by hand are made of: pictures, tools and conversations.

Pictures are drawn with plain Pillow calls and named colours, not by the generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, pi, sin
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from training.chat import Check, Talk
from training.scene import COLOUR_NAMES, Picture


def _draw(what: str, colour: str, ground: str, size: tuple[int, int], box: float) -> Picture:
    image = Image.new("RGB", size, ground)
    pen = ImageDraw.Draw(image)
    side = min(size) * box
    left, top = (size[0] - side) / 2, (size[1] - side) / 2
    right, low = left + side, top + side
    match what:
        case "circle":
            pen.ellipse([left, top, right, low], fill=colour)
        case "square":
            pen.rectangle([left, top, right, low], fill=colour)
        case "triangle":
            pen.polygon([(size[0] / 2, top), (left, low), (right, low)], fill=colour)
        case "rectangle":
            pen.rectangle([left, top + side / 4, right, low - side / 4], fill=colour)
        case "diamond":
            middle = size[1] / 2
            corners = [(size[0] / 2, top), (right - side / 6, middle)]
            corners += [(size[0] / 2, low), (left + side / 6, middle)]
            pen.polygon(corners, fill=colour)
        case "star":
            points = []
            for at in range(10):
                far = side / 2 if at % 2 == 0 else side / 4.8
                points.append(
                    (size[0] / 2 + far * sin(pi * at / 5), size[1] / 2 - far * cos(pi * at / 5))
                )
            pen.polygon(points, fill=colour)
        case _:
            font = ImageFont.load_default(side)
            pen.text((size[0] / 2, size[1] / 2), what, fill=colour, font=font, anchor="mm")
    return Picture(image, [])


def row(what: str, colour: str, count: int, size: tuple[int, int] = (220, 120)) -> Picture:
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    step = size[0] / count
    side = min(step, size[1]) * 0.6
    for at in range(count):
        x, y = step * (at + 0.5), size[1] / 2
        box = [x - side / 2, y - side / 2, x + side / 2, y + side / 2]
        if what == "circle":
            pen.ellipse(box, fill=colour)
        else:
            pen.rectangle(box, fill=colour)
    return Picture(image, [])


def pair(colours: tuple[str, str]) -> Picture:
    """A square on the left and a circle on the right."""
    image = Image.new("RGB", (200, 120), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle([20, 30, 80, 90], fill=colours[0])
    pen.ellipse([120, 30, 180, 90], fill=colours[1])
    return Picture(image, [])


def see(
    what: str, colour: str = "black", ground: str = "white", size: tuple[int, int] = (128, 128),
    box: float = 0.5,
) -> Picture:  # fmt: skip
    return _draw(what, colour, ground, size, box)


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
