"""How a model writes thoughts and calls: what is seen of it, unless someone knows better."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from bushel.chat.reply.pick import pick_style
from bushel.core import Style
from bushel.core.options import Manner
from bushel.models import Preparer

_known: WeakKeyDictionary[Preparer, dict[Manner, Style]] = WeakKeyDictionary()


def style_of(host: Preparer, manner: Manner) -> Style:
    """Found once. Raises BushelError for forms that do not exist."""
    styles = _known.setdefault(host, {})
    if manner not in styles:
        tokenizer = host.tokenizer
        styles[manner] = pick_style(
            tokenizer.template,
            tokenizer.controls,
            host.config,
            tools=manner.tools,
            thinking=manner.thinking,
        )
    return styles[manner]
