"""How many file descriptors there are, and what each is for.

    | own: log, loop, engine | workers | reserve | being refused | connections served |
    0 ...................... 28 ..... 32 ...... 48 ................................ limit

A connection costs one. Those that find no place are told so with a 503, and for that each needs
one, too, for a while; beyond that they wait in the kernel's queue (`http.listener`). The
reserve is held open so that nobody else takes it, and lent for the start of a child: what
recovers must not fail because clients took all there was.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass

from bushel.core import BushelError

_OWN = 28  # measured: 15, and for each worker
_WORKER = 2  # its socket, and what it writes
_RESERVE = 16  # to start a child takes six
_LEAST = 8  # connections, below which it is not worth to begin


@dataclass(frozen=True)
class ConnectionRoom:
    """For connections: that are served, and that are on their way out beside them."""

    served: int
    refused: int


def plan(limit: int, most: int, workers: int) -> ConnectionRoom:
    """Under a limit on descriptors, for so many connections at most."""
    refused = min(256, limit // 8)
    served = min(most, limit - _beside(workers) - refused)
    if served < _LEAST:
        raise BushelError(
            f"This process may open {limit} files, which is too few to serve anyone. "
            f"Raise the limit (ulimit -n) to 256 or more."
        )
    return ConnectionRoom(served, refused)


def _beside(workers: int) -> int:
    """Descriptors that are not for connections."""
    return _OWN + _WORKER * workers + _RESERVE


def raise_limit(most: int, workers: int) -> int:
    """Towards what so many connections need, as far as the hard limit goes; returns the limit.

    A process starts with 256 on macOS, and with 1,024 on most of Linux.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + _beside(workers) + 256
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    try:
        # On macOS the hard limit may be a promise that the kernel does not keep (OPEN_MAX is
        # 10,240); what is asked for is below that.
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def open_standard_streams() -> None:
    """A process may be started without them; whatever is opened next would take their places,
    and what a library prints would go there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free


class Reserve:
    """Descriptors of nothing. What could not be taken back is taken back the next time."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._wanted = False  # to be held
        self._borrowers = 0

    def hold(self) -> None:
        self._wanted = True
        with contextlib.suppress(OSError):
            while len(self._held) < _RESERVE:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Until the last of those who have it leaves. Nothing may be held, too: before `hold` and
        where there is nothing to hold."""
        self._borrowers += 1
        while self._held:
            os.close(self._held.pop())
        try:
            yield
        finally:
            self._borrowers -= 1
            if self._wanted and not self._borrowers:
                self.hold()


reserve = Reserve()  # of this process
