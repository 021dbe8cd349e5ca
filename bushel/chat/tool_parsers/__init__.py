"""All formats by name, in the order in which a template is tried (`pick.py`).

parse.py has sections written as straight code, which most formats are made of, with pieces that
several share: objects.py (JSON), pairs.py (arguments one by one), functions.py and invoke.py
(elements), expressions.py (Python), calls.py (any of these behind one marker).
"""

from __future__ import annotations

from bushel.chat.tool_parsers.generic import Generic
from bushel.chat.tool_parsers.hermes import Hermes
from bushel.chat.tool_parsers.llama import Llama, Pythonic
from bushel.chat.tool_parsers.qwen_coder import Xml
from bushel.chat.tool_parsers.registry import MORE
from bushel.chat.tool_parsers.tool_format import ToolFormat

GENERIC = Generic()
# Many models' tags are Hermes', with something else inside: particular forms come first.
FORMATS: dict[str, ToolFormat] = {
    format.name: format for format in (*MORE, Xml(), Hermes(), Pythonic(), Llama(), GENERIC)
}
