"""All formats by name, in the order in which a template is tried (`pick.py`)."""

from __future__ import annotations

from bushel.chat.reply.format import Format
from bushel.chat.reply.generic import Generic
from bushel.chat.reply.hermes import Hermes
from bushel.chat.reply.llama import Llama, Pythonic
from bushel.chat.reply.more import MORE
from bushel.chat.reply.xml import Xml

GENERIC = Generic()
# Many models' tags are Hermes', with something else inside: particular forms come first.
FORMATS: dict[str, Format] = {
    format.name: format for format in (*MORE, Xml(), Hermes(), Pythonic(), Llama(), GENERIC)
}
