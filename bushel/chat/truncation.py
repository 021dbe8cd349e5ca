"""The end of a prompt that is too long, where a request asks for that (`truncate_prompt_tokens`).

    |-- left out --|------------- kept: the last N tokens -------------|

What the tokenizer puts before every text stays there, and counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bushel.core import Borders, Prepared, RequestError
from bushel.models import Preparer

_FIELD = "truncate_prompt_tokens"


def truncates(request: Mapping[str, Any]) -> bool:
    return request.get(_FIELD) is not None


def truncated(host: Preparer, request: Mapping[str, Any], prepared: Prepared) -> Prepared:
    """The same prompt if it is short enough, or if nothing was asked."""
    if not truncates(request):
        return prepared
    most = _most(host, request)
    if len(prepared.ids) <= most:
        return prepared
    if prepared.has_media:
        raise _refused("cannot cut a prompt that has images")
    first = _first(host, request)
    if most <= len(first):
        raise _refused(f"must be more than {len(first)}, which every text has")
    kept = prepared.ids[len(prepared.ids) - most + len(first) :]
    # Borders are places in the whole prompt, and another turn is cut elsewhere.
    return replace(prepared, ids=(*first, *kept), borders=Borders())


def _most(host: Preparer, request: Mapping[str, Any]) -> int:
    wanted = request[_FIELD]
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted == 0 or wanted < -1:
        raise _refused("must be a number of tokens, or -1")
    if host.context is None:
        return wanted if wanted > 0 else 1 << 31
    if wanted >= host.context:
        raise _refused(f"must be below {host.context}, this model's context")
    if wanted > 0:
        return wanted
    reply = request.get("reply_tokens") or 1
    # One that may be as long as the context leaves room for needs no more than to begin.
    return host.context - (reply if reply < host.context else 1)


def _first(host: Preparer, request: Mapping[str, Any]) -> tuple[int, ...]:
    """What begins every text; templates and lists of ids have what they have."""
    if request.get("prompt") is None:
        return ()
    encode = host.tokenizer.encode
    own, whole = (encode("a", add_special_tokens=special) for special in (False, True))
    starts = (at for at in range(len(whole)) if whole[at : at + len(own)] == own)
    return tuple(whole[: next(starts, 0)])


def _refused(rule: str) -> RequestError:
    return RequestError(f"{_FIELD} {rule}.", code="invalid_value", param=_FIELD)
