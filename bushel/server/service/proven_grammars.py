"""Grammars that are known to compile."""

from __future__ import annotations

import itertools
from collections import OrderedDict

from bushel.core.wire import Check
from bushel.server.errors import ApiError
from bushel.server.processes.pool import Pool

_MOST = 256  # that are remembered; agents send the same ones with every turn


class ProvenGrammars:
    """The engine compiles no grammar that was not compiled in a worker, in time."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._calls = itertools.count()
        self._proven: OrderedDict[str, None] = OrderedDict()  # the last used one last

    async def prove(self, grammar: str, param: str, owner: str, group: str) -> None:
        """ApiError for the field `param` if it does not compile."""
        if grammar not in self._proven:
            try:
                check = Check(f"proof-{next(self._calls)}", grammar)
                await self._pool.ask(check, owner, group)
            except ApiError as error:
                error.param = error.param or param
                raise
        self._proven[grammar] = None
        self._proven.move_to_end(grammar)
        while len(self._proven) > _MOST:
            self._proven.popitem(last=False)
