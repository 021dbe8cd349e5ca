"""Requests of batches on their way: who waits for a place can always be told to stop."""

from __future__ import annotations

import asyncio

import pytest

from bushel.server.batches.in_flight import InFlight


@pytest.mark.parametrize("turns", range(5))
def test_one_that_is_cancelled_as_a_place_becomes_free_does_not_go_on(turns: int) -> None:
    """So that a batch which is cancelled asks nothing more. B83."""

    async def work() -> None:
        places = InFlight(1, live=lambda: 0)
        await places.enter()
        entered = 0

        async def ask_all() -> None:
            nonlocal entered
            while True:
                await places.enter()
                entered += 1
                places.leave()
                await asyncio.sleep(0)

        asking = asyncio.create_task(ask_all())
        await asyncio.sleep(0.01)
        places.leave()
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        before = entered
        await asyncio.wait([asking], timeout=0.2)
        assert asking.cancelled()
        assert entered == before

    asyncio.run(work())
