"""Servers that share a machine's memory by files alone: nobody has more than there is (B73)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from bushel.core import ModelError
from bushel.core.options import EngineOptions
from bushel.core.status import EngineStatus, MemoryStatus
from bushel.core.wire import MachineLimits, SetMemoryLimit, WireMessage
from bushel.server.models import memory_ledger
from bushel.server.models.claims import Claims
from bushel.server.models.memory_ledger import EngineClaim, MemoryLedger
from tests.depth import often

MACHINE = 2_000_000_000
LIMITS = MachineLimits(MACHINE, True)
OPTIONS = EngineOptions("bushel:tiny")  # needs 0.6 GB


class PlayedEngine:
    """Has the memory it was started with until it says that it keeps to what it was told."""

    def __init__(self, ledger: MemoryLedger):
        self.claim: EngineClaim = ledger.claim(OPTIONS, "m")
        self._descriptors = self.claim.descriptors
        self.told: int | None = None
        self.has = 0
        self.starting = asyncio.create_task(self._start())

    async def _start(self) -> None:
        self.has = self.told = await self.claim.allot(LIMITS)
        self.say()

    def _hear(self, message: WireMessage) -> None:
        assert isinstance(message, SetMemoryLimit)
        self.told = message.limit
        self.has = max(self.has, self.told)

    def say(self) -> None:
        """A beat; by now it keeps to what it was told."""
        if self.told is not None:
            self.has = self.told
            status = EngineStatus(memory=MemoryStatus(claimed_bytes=self.has))
            self.claim.heard(status, self._hear)

    def end(self) -> None:
        self.starting.cancel()
        self.claim.release()


@pytest.mark.parametrize("seed", often(range(20), *range(5)))
def test_all_engines_of_all_servers_stay_under_the_limit_and_get_what_there_is(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)

    async def work() -> None:
        limits = (None, None, 1_500_000_000)
        ledgers = [MemoryLedger(limit, Claims(tmp_path)) for limit in limits]
        for ledger in ledgers:
            ledger.learn(LIMITS)
        engines: list[tuple[MemoryLedger, PlayedEngine]] = []
        for _ in range(150):
            act = rng.choice(("start", "end", "beat", "beat", "balance", "balance"))
            if act == "start" and len(engines) < 3:
                ledger = rng.choice(ledgers)
                engines.append((ledger, PlayedEngine(ledger)))
            elif act == "end" and engines and rng.random() < 0.3:
                engines.pop(rng.randrange(len(engines)))[1].end()
            elif act == "beat" and engines:
                rng.choice(engines)[1].say()
            else:
                rng.choice(ledgers).balance()
            await asyncio.sleep(0.001)
            assert sum(engine.has for _, engine in engines) <= MACHINE
            assert sum(engine.has for whose, engine in engines if whose is ledgers[2]) <= limits[2]
        for _ in range(8):
            for ledger, engine in engines:
                engine.say()
                ledger.balance()
            await asyncio.sleep(0.02)
        shares = [engine.has for ledger, engine in engines if ledger.limit == MACHINE]
        assert all(engine.has for _, engine in engines)
        assert not shares or max(shares) - min(shares) <= MACHINE // 20
        for _, engine in engines:
            engine.end()
        for ledger in ledgers:
            ledger.balance()
        assert ledgers[0].granted == 0

    asyncio.run(work())


def test_one_that_finds_no_room_beside_others_is_told_who_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_ledger, "CROWDED", 0.05)

    async def work() -> None:
        ledgers = [MemoryLedger(None, Claims(tmp_path)) for _ in range(4)]
        engines = []
        for ledger in ledgers[:3]:
            engines.append(engine := PlayedEngine(ledger))
            while not engine.starting.done():
                for before in engines:
                    before.say()
                for other in ledgers:
                    other.balance()
                await asyncio.sleep(0.01)
        with pytest.raises(ModelError, match="other Bushel processes on this machine have"):
            await PlayedEngine(ledgers[3]).starting

    asyncio.run(work())


@pytest.mark.parametrize(("limit", "fits"), [(34_000_000, True), (33_000_000, False)])
def test_weights_that_are_too_large_are_told_from_their_header(
    tmp_path: Path, limit: int, fits: bool
) -> None:
    """31.6 MB of them in float32, beside what an engine leaves alone."""

    async def work() -> int:
        ledger = MemoryLedger(limit, Claims(tmp_path))
        ledger.learn(LIMITS)
        return await ledger.need(OPTIONS)

    if fits:
        assert asyncio.run(work()) == limit
    else:
        with pytest.raises(ModelError, match=r"0\.03 GB for its weights alone"):
            asyncio.run(work())
