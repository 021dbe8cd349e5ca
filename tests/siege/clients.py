"""Well-behaved clients: they ask, read fast or slowly, leave early or cancel, and ask again.

A reply is right, or one typed error that faults explain. Everything else is wrong.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from tests.siege.exchange import PATIENCE, Broken, Choices, Exchange, Pace, Refusal, choices_of
from tests.siege.questions import PATHS, Question, difference
from tests.siege.tally import Tally

# What a good request may be told while others do their worst.
_EXCUSED = {429, 503}
_LOST = {"engine_restarted", "engine_unavailable", "overloaded_error", "api_error"}
_CANCELLED = {"request_cancelled", "conflict_error"}
# The code of every failed response in OpenAI's API; its message tells more.
_GENERAL = "server_error"
_LOST_WORDS = ("The engine stopped", "The server is not ready", "The engine is not ready")
_CANCELLED_WORDS = "The request was cancelled"


@dataclass(frozen=True)
class Asker:
    port: int
    keys: tuple[str, ...]
    expected: dict[str, Choices]
    tally: Tally

    async def ask(
        self,
        question: Question,
        *,
        stream: bool,
        key: str | None = None,
        pace: Pace | None = None,
    ) -> Choices:
        more = {} if pace is None else {"pace": pace}
        async with Exchange(
            self.port,
            "POST",
            PATHS[question.api],
            question.payload(stream=stream),
            headers=self._headers(key or self.keys[0]),
            **more,
        ) as body:
            return await choices_of(question.api, body)

    @staticmethod
    def _headers(key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"}

    # -- manners -----------------------------------------------------------------------------

    async def patient(self, question: Question, chance: random.Random) -> None:
        """Reads to the end."""
        key, stream = chance.choice(self.keys), chance.random() < 0.6
        await self._judge(question, self.ask(question, stream=stream, key=key))

    async def slow(self, question: Question, chance: random.Random) -> None:
        """Reads a piece now and then, then the rest at once."""
        naps = [chance.random() * 0.4 for _ in range(8)]

        async def pace() -> None:
            if naps:
                await asyncio.sleep(naps.pop())

        key = chance.choice(self.keys)
        await self._judge(question, self.ask(question, stream=True, key=key, pace=pace))

    async def leaver(self, question: Question, chance: random.Random) -> None:
        """Goes away at some moment."""
        moment = chance.choice([0.02, 0.2, 1.0, 4.0]) * chance.random()
        asking = asyncio.create_task(self.ask(question, stream=chance.random() < 0.5))
        await asyncio.wait([asking], timeout=moment)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        self.tally.replies["left"] += 1

    async def canceller(self, question: Question, chance: random.Random) -> None:
        """Cancels its own request by id, from another connection."""
        key = chance.choice(self.keys)

        async def ask() -> Choices:
            async with Exchange(
                self.port,
                "POST",
                PATHS[question.api],
                question.payload(stream=True),
                headers=self._headers(key),
            ) as body:
                request_id = body.headers.get("x-request-id", "none")
                if body.status == 200:
                    await self._cancel(request_id, key)
                return await choices_of(question.api, body)

        await self._judge(question, ask(), cancelled=True)

    async def _cancel(self, request_id: str, key: str) -> None:
        headers = self._headers(key)
        path = f"/v1/requests/{request_id}"
        async with Exchange(self.port, "DELETE", path, headers=headers) as body:
            await body.whole()
            if body.status not in (200, 404, 503):
                self.tally.bad(f"cancelling gave {body.status}")

    async def _judge(self, question: Question, asking: object, *, cancelled: bool = False) -> None:
        tally = self.tally
        try:
            got = await asyncio.wait_for(asking, PATIENCE)  # type: ignore[arg-type]
        except Refusal as refusal:
            tally.replies[str(refusal)] += 1
            if not _excused(refusal) and not (cancelled and _was_cancelled(refusal)):
                tally.bad(f"{question.name}: {refusal}: {refusal.message}")
        except (Broken, OSError, ValueError, KeyError) as error:
            tally.replies["broken"] += 1
            tally.bad(f"{question.name}: {error!r}")
        except TimeoutError:
            tally.replies["no answer"] += 1
            tally.bad(f"{question.name}: no answer within {PATIENCE:g} s")
        else:
            problem = difference(got, self.expected[question.name])
            tally.replies["different" if problem else "right"] += 1
            if problem:
                tally.bad(f"{question.name} by {question.api}: {problem}")


def _excused(refusal: Refusal) -> bool:
    if refusal.status != 200:
        return refusal.status in _EXCUSED
    general = refusal.code == _GENERAL and refusal.message.startswith(_LOST_WORDS)
    return general or refusal.code in _LOST


def _was_cancelled(refusal: Refusal) -> bool:
    general = refusal.code == _GENERAL and refusal.message.startswith(_CANCELLED_WORDS)
    return general or refusal.code in _CANCELLED


async def client(asker: Asker, asked: list[Question], seed: int, ended: asyncio.Event) -> None:
    """One client after the other in this place, until the end."""
    chance = random.Random(seed)
    manners = [asker.patient] * 6 + [asker.leaver] * 2 + [asker.slow, asker.canceller]
    while not ended.is_set():
        await chance.choice(manners)(chance.choice(asked), chance)
        # Arrivals come in bursts, with rests between them.
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 2)
