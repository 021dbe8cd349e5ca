"""The memory of all bodies that are being read or decoded, under one limit.

    |<---------------------------- bodies_bytes ---------------------------->|
    |   body   |      body      | body |                 free                |

A body may grow while it is no larger than what is free then. So large ones are refused first and
small ones go on; one alone may have half of all, which is at least `body_bytes`; and of n that grow
without end each gets an (n + 1)th, which leaves as much for somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bushel.server.errors import ApiError
from bushel.server.options import Limits


class Bodies:
    def __init__(self, limits: Limits):
        self._free = max(limits.bodies_bytes, 2 * limits.body_bytes)

    @contextmanager
    def reading(self) -> Iterator[Body]:
        """Its memory is given back when the block is left."""
        body = Body(self)
        try:
            yield body
        finally:
            self._free += len(body.data)

    def take(self, size: int, more: int) -> None:
        """For a body of `size` bytes to grow by `more`; 503 if it may not."""
        if size + more > self._free - more:
            raise ApiError(
                503,
                "Too many large requests are being received. Try again.",
                code="too_many_bodies",
                retry_after=1,
            )
        self._free -= more


class Body:
    """One body as far as it has come."""

    def __init__(self, bodies: Bodies):
        self._bodies = bodies
        self.data = bytearray()

    def add(self, piece: bytes) -> None:
        self._bodies.take(len(self.data), len(piece))
        self.data += piece
