"""One memory for rows and for what is kept of earlier ones: who may have how much of it now."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bushel.cache.paged.page_kernels import PAGE
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.prefix import PrefixCache
from bushel.core.footprint import Memory
from bushel.engine import device_memory
from bushel.engine.admission import Admission
from bushel.engine.device_memory import MemoryClaim
from bushel.engine.request_queue import GROWTH, ROOM, RequestQueue
from bushel.engine.sequence import Sequence as Row
from bushel.models import Model

_FOR_ROWS = 0.25  # of the pages that prefixes may take, as many more


class MemorySharing:
    """Owned by one engine."""

    def __init__(
        self,
        model: Model,
        admission: Admission,
        prefixes: PrefixCache | None,
        claim: MemoryClaim,
    ):
        self._model, self._admission, self._prefixes = model, admission, prefixes
        self._claim = claim
        self._least_pages = 0
        self._grown = 0  # tokens of a row, at most, since memory was looked at
        self.outgrown = False  # whether rows may have used up what they were promised
        self._watch_pages()

    def grow(self, said: int, widest: int) -> None:
        """At the beginning of a step. said: tokens of a row, at most, since the last one. widest:
        what one may say in the present one.
        """
        self._grown += said
        self.outgrown = self._grown + widest > GROWTH
        if self.outgrown:
            self._grown = 0

    def keep_to(self, limit: int, usable: int, kept: int) -> None:
        """Another limit for MLX; rows and what is kept of prompts may have `usable` of it, and
        what is kept `kept` at most. Holds when it is settled.
        """
        self._admission.tell(limit, usable)
        self._claim.release()
        self._claim = device_memory.claim(limit, usable)
        if self._prefixes is not None:
            self._prefixes.keep_to(kept)

    def settle(self, queue: RequestQueue, running: Sequence[Row]) -> None:
        """Between steps: come nearer to a limit that was told."""
        memory = self.promised(queue, running)
        if memory is None or not self._admission.settling:
            return
        rows = (*queue.sequences(), *running)
        present = ((len(row.request.choices), row.reach(ROOM)) for row in rows)
        self._admission.settle(present, self._admission.peak(memory))
        self.fit(self.promised(queue, running))

    @property
    def _pool(self) -> PagePool | None:
        pool: PagePool | None = self._model.pages
        return pool

    def promised(self, queue: RequestQueue, running: Sequence[Row]) -> Memory | None:
        """Memory, with what rows have and were promised; None where nobody counts."""
        lengths = [*queue.lengths(), *(sequence.reach(GROWTH) for sequence in running)]
        if self._pool is None:
            return self._admission.promised(lengths)
        # What rows hold in pages, each once, and what they may take next.
        more = queue.missing() + GROWTH * len(running)
        return self._admission.promised(lengths, self._pool.of_rows * PAGE + more)

    def fit(self, memory: Memory | None) -> None:
        """What is kept for later takes no more than what rows were promised leaves."""
        if memory is None:
            return
        if self._pool is not None:
            self._fit_pages(self._pool, memory)
        elif self._prefixes is not None:
            self._prefixes.fit(*self._admission.spare(memory))

    def _fit_pages(self, pool: PagePool, memory: Memory) -> None:
        """Pages that are only kept may take what rows leave; those that rows hold as well count
        as theirs once they are no longer kept.
        """
        limit = self._admission.paged_tokens(memory) // PAGE
        while self._prefixes is not None:
            of_rows_alone = pool.used - pool.of_kept
            more = memory.tokens // PAGE - pool.of_rows
            spare = limit - of_rows_alone - more
            before = self._prefixes.budget.evicted
            self._prefixes.fit(spare * pool.page_bytes, self._admission.spare(memory)[1])
            if self._prefixes.budget.evicted == before:
                break
        pool.fit(limit)

    def allocate(self) -> int:
        """Have at once the pages that prefixes may take, and some for rows; returns the bytes.

        For memory that is a device's own: a pool that grows is copied while all rows wait, and
        what it would come to is its own sooner or later.
        """
        pool, memory = self._pool, self._admission.memory
        if pool is None or memory is None or self._prefixes is None or not pool.page_bytes:
            return 0
        wanted = (1 + _FOR_ROWS) * self._prefixes.budget.limit // pool.page_bytes
        self._least_pages = min(int(wanted), self._admission.paged_tokens(memory) // PAGE)
        pool.least = self._least_pages
        pool.resize(pool.least)
        return pool.nbytes

    def pages_hold(self) -> bool:
        """Whether what was written to pages can be computed, after an evaluation has failed."""
        return self._pool is None or self._pool.computable()

    def new_pages(self) -> None:
        """Other pages, in which nobody has written."""
        if self._pool is not None:
            self._model.pages = PagePool(len(self._pool.layers))
            self._model.pages.least = self._least_pages
            self._watch_pages()

    def _watch_pages(self) -> None:
        """Who wants pages when there are none has those that are only kept."""
        if self._pool is not None and self._prefixes is not None:
            self._pool.reclaim = partial(self._prefixes.reclaim, self._pool)

    def rest(self) -> None:
        """Nobody runs: pages that nobody holds go, but for those that `allocate` has taken."""
        if self._pool is not None:
            self._pool.resize(0)

    def close(self) -> None:
        self._claim.release()

    def check_integrity(self) -> None:
        if self._pool is not None:
            self._pool.check_integrity()
