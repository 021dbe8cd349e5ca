"""All tool formats by name, in the order in which a template is tried.

Every module of this folder is looked through for values of `ToolFormat`, so that a new one is a
file and nothing else. A module's formats are tried from the last one to the first: what is a
particular form of another one stands below it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Final

from bushel.chat import tool_parsers
from bushel.chat.tool_parsers.tool_format import ToolFormat

# Their signs stand in templates of other formats too, so they come last, in this order.
_GENERAL: Final = ("tool_calls", "xml", "hermes", "pythonic", "llama", "generic")


def _formats() -> Iterator[ToolFormat]:
    for module in pkgutil.iter_modules(tool_parsers.__path__):  # in the order of their names
        if module.name != "registry" and not module.ispkg:
            members = vars(importlib.import_module(f"{tool_parsers.__name__}.{module.name}"))
            formats = [value for value in members.values() if isinstance(value, ToolFormat)]
            yield from reversed(formats)


def _in_order() -> dict[str, ToolFormat]:
    formats = {format.name: format for format in _formats()}
    general = {name: formats.pop(name) for name in _GENERAL}
    return formats | general


FORMATS: Final = _in_order()
