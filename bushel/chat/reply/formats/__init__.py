"""All formats by name, in the order in which a template is tried (`pick.py`).

parse.py has sections written as straight code, which most formats are made of, with pieces that
several share: objects.py (JSON), pairs.py (arguments one by one), functions.py and invoke.py
(elements), expressions.py (Python), calls.py (any of these behind one marker).
"""

from __future__ import annotations

from bushel.chat.reply.format import Format
from bushel.chat.reply.formats.generic import Generic
from bushel.chat.reply.formats.hermes import Hermes
from bushel.chat.reply.formats.llama import Llama, Pythonic
from bushel.chat.reply.formats.more import MORE
from bushel.chat.reply.formats.xml import Xml

GENERIC = Generic()
# Many models' tags are Hermes', with something else inside: particular forms come first.
FORMATS: dict[str, Format] = {
    format.name: format for format in (*MORE, Xml(), Hermes(), Pythonic(), Llama(), GENERIC)
}
