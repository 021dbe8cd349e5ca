"""Whether a model begins to think where nobody tells it to: seen in what its template renders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from bushel.chat.template.template_probe import abilities_of
from bushel.core import RequestError
from bushel.models import Preparer
from bushel.text.tokenizer import Tokenizer

_TALK = [{"role": "user", "content": "a"}]
_known: WeakKeyDictionary[Tokenizer, bool] = WeakKeyDictionary()


def thinks_by_default(request: Mapping[str, Any], host: Preparer) -> bool:
    """Whether a reply may begin with thoughts, if its prompt has not begun with them already."""
    asked = request.get("thinking") or {}
    switch = abilities_of(host.tokenizer).switch
    options = request.get("chat_template_kwargs") or {}
    enabled = asked.get("enabled")
    if switch is not None and switch.name in options:
        enabled = options[switch.name] != switch.off
    if enabled is None and (asked.get("budget") or asked.get("effort")):
        enabled = True
    return _by_itself(host.tokenizer) if enabled is None else bool(enabled)


def _by_itself(tokenizer: Tokenizer) -> bool:
    if tokenizer not in _known:
        switch = abilities_of(tokenizer).switch
        try:
            off = {} if switch is None else {switch.name: switch.off}
            plain, without = tokenizer.render(_TALK), tokenizer.render(_TALK, **off)
            _known[tokenizer] = switch is None or plain != without
        except RequestError:  # it will be said when the template is used
            _known[tokenizer] = True
    return _known[tokenizer]
