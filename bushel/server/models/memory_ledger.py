"""The memory of this server's engines: claimed, granted, and shared with all other servers here.

    machine   | granted to others' engines | granted to ours | free |
    server                                 |  --memory-limit-gb     |

Everyone's share of the machine is in proportion to its need. One that has more is told to keep to
less, and its grant is lowered when it does (`claims`); one that has less gets what is free.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET

from bushel.core.checkpoint import loaded_bytes, require_fit
from bushel.core.options import EngineOptions
from bushel.core.status import EngineStatus
from bushel.core.wire import MachineLimits, SetMemoryLimit, WireMessage
from bushel.server.models.claims import (
    CROWDED,
    KEPT_FREE,
    SLACK,
    ClaimBusy,
    Claims,
    MemoryTicket,
    SeenClaim,
    crowded_out,
    need_of,
    share,
)

log = logging.getLogger(__name__)

_TICK = 0.25  # seconds between two looks at what others claim


class MemoryLedger:
    """Belongs to the event loop. limit: bytes for all of this server's engines; None: what the
    machine can spare.
    """

    def __init__(self, limit: int | None, claims: Claims):
        self.limits: MachineLimits | None = None  # of the machine, once an engine has told them
        self._limit = limit
        self._claims = claims
        self._own: dict[str, EngineClaim] = {}  # by the names of their files
        self._learned = asyncio.Event()
        self.others = 0  # bytes that other servers' engines need, as of the last look
        self.granted = 0  # bytes that all engines of this machine may use, likewise

    @property
    def machine(self) -> int:
        """Bytes for all engines of this machine."""
        assert self.limits is not None
        return max(self.limits.memory, self._limit or 0)

    @property
    def limit(self) -> int:
        """Bytes for this server's engines."""
        return self.machine if self._limit is None else self._limit

    @property
    def room(self) -> int:
        """Bytes that this server's models may need together, beside all others."""
        return min(self.limit, self.machine - self.others)

    def learn(self, limits: MachineLimits) -> None:
        self.limits = limits
        self._learned.set()

    async def need(self, options: EngineOptions) -> int:
        """Of a model, from its files. ModelError if its weights alone are too much."""
        await self._learned.wait()
        assert self.limits is not None
        weights = await asyncio.to_thread(
            loaded_bytes, options.model, options.dtype, widens=self.limits.widens
        )
        require_fit(weights, self.limit - self.limit // KEPT_FREE)
        return need_of(weights, self.limit)

    def claim(self, options: EngineOptions, name: str) -> EngineClaim:
        return EngineClaim(self, options, name)

    # -- for claims ------------------------------------------------------------------------

    def open(self, claim: EngineClaim, name: str, need: int) -> MemoryTicket:
        with self._claims.locked():  # or others take it for one that nobody holds
            ticket = self._claims.add(name, need)
        self._own[ticket.name] = claim
        return ticket

    def release(self, ticket: MemoryTicket) -> None:
        self._own.pop(ticket.name, None)
        self._claims.release(ticket)

    def close(self) -> None:
        """All engines are gone."""
        for claim in list(self._own.values()):
            claim.release()

    # -- sharing ---------------------------------------------------------------------------

    async def run(self) -> None:
        while True:
            self.balance()
            await asyncio.sleep(_TICK)

    def balance(self) -> None:
        """One look at what everybody claims, and what follows for our own."""
        if self.limits is None:
            return
        try:
            with self._claims.locked():
                self._balance(self._claims.all())
        except ClaimBusy:
            log.debug("another server holds the list of claims")
        except OSError as error:
            log.warning("claims on memory cannot be read: %s", error.strerror)

    def _balance(self, claims: Sequence[SeenClaim]) -> None:
        self.granted = sum(claim.record.granted for claim in claims)
        present = self._present(claims)
        needs = [claim.record.need for claim in present]
        own = [claim for claim in present if claim.own]
        own_needs = [claim.record.need for claim in own]
        self.others = _needed_by_others(claims)
        ours = sum(claim.record.granted for claim in own)
        for at, seen in enumerate(present):
            claim = self._own.get(seen.name)
            if claim is None:
                continue
            mine = share(self.limit, own_needs, own.index(seen))
            target = min(share(self.machine, needs, at), max(mine, seen.record.need))
            more = claim.balance(target, min(self.machine - self.granted, self.limit - ours))
            self.granted += more
            ours += more

    def is_crowded_out(self, ticket: MemoryTicket) -> bool:
        """Whether others need so much that it would not fit, whatever they give back."""
        return ticket.record.need > self.machine - self.others

    def _present(self, claims: Sequence[SeenClaim]) -> list[SeenClaim]:
        """Those that have memory, and of those that wait as many as there could be room for, in
        the order in which they came.
        """
        total = sum(claim.record.need for claim in claims if claim.record.granted)
        present = []
        for claim in claims:
            if not claim.record.granted:
                if total + claim.record.need > self.machine or not claim.record.need:
                    continue
                total += claim.record.need
            present.append(claim)
        return present


def _needed_by_others(claims: Sequence[SeenClaim]) -> int:
    """Of those that wait, by the ones that came before ours do."""
    waiting = [claim.record.since for claim in claims if claim.own and not claim.record.granted]
    first = min(waiting, default=math.inf)
    return sum(
        claim.record.need
        for claim in claims
        if not claim.own and (claim.record.granted or claim.record.since < first)
    )


class EngineClaim:
    """`supervisor.EngineMemory` of one model. It is claimed from `queue` or the first engine on,
    until `release`.
    """

    def __init__(self, ledger: MemoryLedger, options: EngineOptions, name: str):
        self._ledger = ledger
        self._options = options
        self._name = name
        self._ticket: MemoryTicket | None = None
        self._wanted: asyncio.Future[int] | None = None  # an engine that waits for its memory
        self._keeps_to: int | None = None  # as the present engine says
        self._told: int | None = None  # what the present engine was told to keep to
        self._send: Callable[[WireMessage], None] | None = None

    @property
    def granted(self) -> int:
        return 0 if self._ticket is None else self._ticket.record.granted

    def queue(self, need: int) -> None:
        """Everybody is to know that it is wanted."""
        if self._ticket is None:
            self._ticket = self._ledger.open(self, self._name, need)
        else:
            record = self._ticket.record
            self._ticket.write(msgspec.structs.replace(record, need=need))

    def release(self) -> None:
        """The engine is gone, and none follows."""
        self._forget_engine()
        if self._ticket is not None:
            self._ledger.release(self._ticket)
            self._ticket = None

    def _forget_engine(self) -> None:
        self._keeps_to = self._told = self._send = None

    def balance(self, target: int, free: int) -> int:
        """Come nearer to a share; returns how many bytes more are granted.

        An engine is told one thing at a time: what it said before it heard the last one would be
        taken for an answer to it.
        """
        assert self._ticket is not None
        before, need = self.granted, self._ticket.record.need
        if not before:
            if self._wanted is None or self._wanted.done() or free < need:
                return 0
            self._ticket.grant(max(need, min(target, free)))
            self._wanted.set_result(self.granted)
            return self.granted
        if self._send is None or self._told is None or self._keeps_to != self._told:
            return 0
        if self._told != before:  # it was told to keep to less, and does
            self._ticket.grant(self._told)
        elif target < before - before // SLACK:
            self._tell(target)
        elif target > before + before // SLACK and free > 0:
            self._ticket.grant(min(target, before + free))
            self._tell(self.granted)
        return self.granted - before

    def _tell(self, limit: int) -> None:
        assert self._send is not None
        self._told = limit
        self._send(SetMemoryLimit(limit))

    # -- supervisor.EngineMemory -------------------------------------------------------------

    @property
    def descriptors(self) -> Sequence[int]:
        if self._ticket is None:
            self.queue(0)
        assert self._ticket is not None
        return [self._ticket.descriptor]

    async def allot(self, limits: MachineLimits) -> int:
        self._forget_engine()
        self._ledger.learn(limits)
        if self.granted:  # to the engine before
            return self.granted
        self.queue(await self._ledger.need(self._options))
        self._wanted = asyncio.get_running_loop().create_future()
        self._ledger.balance()
        try:
            return await self._granted(self._wanted)
        finally:
            self._wanted = None

    async def _granted(self, wanted: asyncio.Future[int]) -> int:
        while not wanted.done():
            await asyncio.wait([wanted], timeout=CROWDED)
            assert self._ticket is not None
            if not wanted.done() and self._ledger.is_crowded_out(self._ticket):
                need, others = self._ticket.record.need, self._ledger.others
                raise crowded_out(need, others, self._ledger.machine)
        return wanted.result()

    def heard(self, status: EngineStatus, send: Callable[[WireMessage], None]) -> None:
        if isinstance(status, EngineStatus) and status.memory.claimed_bytes is not UNSET:
            self._keeps_to = status.memory.claimed_bytes
            first, self._send = self._send is None, send
            if first:
                self._told = self._keeps_to
            if self._told == self._keeps_to != self.granted:
                self._ledger.balance()
