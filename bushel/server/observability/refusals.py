"""A line for every request that was turned away before it had a record of its own.

Those that are alike get a few lines in a while, and then their number: whoever knocks a thousand
times a second fills no disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from bushel.core.awake_clock import awake
from bushel.server.errors import ApiError
from bushel.server.observability.logs import one_line

_MOST = 10  # lines for those that are alike
_WHILE = 10.0  # seconds
_SHOWN_PATH, _SHOWN_WHY = 120, 300  # characters

Kind = tuple[int, str | None]  # status and code
Later = Callable[[float, Callable[[], None]], object]

log = logging.getLogger("bushel.refused")


def _on_the_loop(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)


class Refusals:
    """Belongs to the event loop. later: calls something after so many seconds."""

    def __init__(self, later: Later = _on_the_loop, clock: Callable[[], float] = awake):
        self._later, self._clock = later, clock
        # When their while began, and how many came, by what they are told: few kinds, since codes
        # are the server's own.
        self._alike: dict[Kind, tuple[float, int]] = {}

    def tell(self, error: ApiError, what: str, client: str | None) -> None:
        """what: method and address, as far as they are known."""
        if error.told or error.status < 400:
            return
        error.told = True
        kind, now = (error.status, error.code), self._clock()
        begun, before = self._alike.get(kind, (now, 0))
        if now - begun > 2 * _WHILE:  # of a loop that has ended
            self._end(kind)
            begun, before = now, 0
        if not before:
            self._later(_WHILE, partial(self._end, kind))
        self._alike[kind] = begun, before + 1
        if before < _MOST:
            self._write(
                error.status,
                f"refused {_named(kind)}: {one_line(what, _SHOWN_PATH) or 'no request'} from "
                f"{client or 'a local socket'}: {one_line(error.message, _SHOWN_WHY)}",
                {"code": error.code, "param": error.param, "client": client},
            )

    def _end(self, kind: Kind) -> None:
        _, count = self._alike.pop(kind, (0.0, 0))
        if (more := count - _MOST) > 0:
            words = f"refused {_named(kind)}: {more} more requests in {_WHILE:g} s"
            self._write(kind[0], words, {"code": kind[1], "more": more})

    def _write(self, status: int, words: str, fields: dict[str, Any]) -> None:
        level = logging.WARNING if status >= 500 else logging.INFO
        log.log(level, "%s", words, extra={"fields": {"status": status, **fields}})


def _named(kind: Kind) -> str:
    status, code = kind
    return f"{status} {code}" if code else str(status)


refusals = Refusals()
