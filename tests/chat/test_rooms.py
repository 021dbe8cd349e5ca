"""The rooms of `bushel/chat` build on one another in one direction.

structured_output <─ tool_parsers <─ reply, template <─ what makes prompts
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_layout import ROOT, imported, module_of

# What each may import of the others.
BUILDS_ON: dict[str, set[str]] = {
    "media": set(),
    "structured_output": set(),
    "tool_parsers": {"structured_output"},
    "reply": {"tool_parsers"},
    "template": {"tool_parsers"},
}


def astray(source: str, module: str) -> set[str]:
    """Rooms that a module of a room may not import, and does."""
    room = module.split(".")[2]
    names = (name.split(".") for name in imported(source, module))
    rooms = {name[2] for name in names if name[:2] == ["bushel", "chat"] and len(name) > 2}
    return rooms & BUILDS_ON.keys() - {room} - BUILDS_ON[room]


SOURCES = [path for room in BUILDS_ON for path in sorted((ROOT / "chat" / room).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_a_room_imports_only_what_it_builds_on(path: Path) -> None:
    assert astray(path.read_text(), module_of(path)) == set()


def test_every_room_has_its_place() -> None:
    folders = {path.parent.name for path in (ROOT / "chat").glob("*/__init__.py")}
    assert folders == BUILDS_ON.keys()


def test_control_an_import_the_other_way_is_reported() -> None:
    wrong = "from bushel.chat.reply.reader import Reader"
    assert astray(wrong, "bushel.chat.tool_parsers.hermes") == {"reply"}
    right = "from bushel.chat.tool_parsers.registry import FORMATS"
    assert astray(right, "bushel.chat.reply.reader") == set()
