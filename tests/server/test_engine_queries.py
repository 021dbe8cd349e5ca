"""Who asks the engine about itself gets the answer to that question."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bushel.core.wire import AskStatus, ClearCache, Cleared, Status, WireMessage
from bushel.server.errors import ApiError
from bushel.server.service import engine_queries
from bushel.server.service.engine_queries import EngineQueries


def asked(
    *names: str,
) -> tuple[EngineQueries, list[WireMessage], list[asyncio.Task[dict[str, Any]]]]:
    sent: list[WireMessage] = []
    made = EngineQueries(sent.append)
    return made, sent, [asyncio.ensure_future(getattr(made, name)()) for name in names]


def test_a_clearing_is_answered_by_its_own_word_and_in_order() -> None:
    async def work() -> None:
        made, sent, (one, status, two) = asked("clear", "status", "clear")
        await asyncio.sleep(0)
        assert sent == [ClearCache(), AskStatus(), ClearCache()]
        made.hear(Cleared({"at": 1}))
        made.hear(Status({"at": 2}))
        assert (await one, await status) == ({"at": 1}, {"at": 2})
        assert not two.done()
        made.hear(Cleared({"at": 3}))
        assert await two == {"at": 3}

    asyncio.run(work())


def test_one_status_answers_all_who_wait_for_one() -> None:
    async def work() -> None:
        made, _, waiting = asked("status", "status")
        await asyncio.sleep(0)
        made.hear(Status({"at": 1}))
        assert await asyncio.gather(*waiting) == [{"at": 1}] * 2

    asyncio.run(work())


def test_who_waits_for_an_engine_that_died_is_told() -> None:
    async def work() -> None:
        made, _, waiting = asked("status", "clear")
        await asyncio.sleep(0)
        made.lose()
        for task in waiting:
            with pytest.raises(ApiError) as raised:
                await task
            assert raised.value.code == "engine_restarted"
        made.hear(Cleared({}))  # of nobody who is still there

    asyncio.run(work())


def test_a_busy_engine_is_a_503_and_its_late_word_goes_to_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_queries, "_CLEAR_SECONDS", 0.01)

    async def work() -> None:
        made, _, [late] = asked("clear")
        with pytest.raises(ApiError, match="busy") as raised:
            await late
        assert raised.value.status == 503
        monkeypatch.setattr(engine_queries, "_CLEAR_SECONDS", 10.0)
        second = asyncio.ensure_future(made.clear())
        await asyncio.sleep(0)
        made.hear(Cleared({"at": 1}))
        await asyncio.sleep(0)
        assert not second.done()
        made.hear(Cleared({"at": 2}))
        assert await second == {"at": 2}

    asyncio.run(work())
