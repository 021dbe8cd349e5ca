"""`python -m tests.siege`: runs the campaign and prints what happened; exits with 1 if not well."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bushel
from tests.server.hostile_requests import KEY, Listener, media_folder
from tests.server.server_process import alive, free_port
from tests.siege.attackers import Attacker, attack, cases
from tests.siege.clients import Asker, client
from tests.siege.exchange import Broken, Choices, Exchange
from tests.siege.faults import Disk, Faults, strike
from tests.siege.processes import Held, held, left_over
from tests.siege.questions import Question, difference, questions, solo
from tests.siege.tally import Tally

OPERATOR = "operator-of-the-siege"
KEYS = (KEY, "another-key")
DESCRIPTORS = 512  # that the front may have: fewer than one of the faults takes
RECOVERY = 300.0  # seconds until all is well again, at most


@dataclass(frozen=True)
class Options:
    seconds: float
    seed: int
    clients: int
    attackers: int
    every: float  # seconds between two faults, on average
    warm_up: float


class Besieged:
    """A real `bushel serve` with little of everything."""

    def __init__(self, folder: Path, media: str):
        self.port = free_port()
        self.model = Path(shutil.copytree(Path(str(bushel.__file__)).parent / "tiny", folder / "m"))
        self.disk = Disk(folder / "cache")
        self.log = folder / "log"
        command = [
            *(sys.executable, "-m", "bushel", "serve", str(self.model)),
            *("--served-model-name", "siege", "--port", str(self.port)),
            *("--operator-key", OPERATOR, *(it for key in KEYS for it in ("--api-key", key))),
            *("--allow-remote-media", "--media-path", media, "--max-body-mb", "1"),
            *("--cache-dir", str(self.disk.folder), "--cache-disk", "32MB"),
            *("--cache-memory", "64MB", "--hang-seconds", "8", "--max-num-seqs", "8"),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=_few_descriptors
            )

    async def get(self, path: str, method: str = "GET") -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {OPERATOR}"}
        async with Exchange(self.port, method, path, headers=headers) as body:
            return body.status, await body.whole()

    async def at_peace(self) -> None:
        """All processes are there, and nothing runs or waits."""
        end = time.monotonic() + RECOVERY
        while time.monotonic() < end:
            with contextlib.suppress(OSError, Broken):
                status, payload = await self.get("/v1/status")
                told: dict[str, Any] = json.loads(payload) if status == 200 else {}
                busy = told.get("requests") or told.get("running") or told.get("waiting")
                if told.get("health") == "ok" and not busy and len(held(self.process.pid)) == 4:
                    return
            if self.process.poll() is not None:
                raise SystemExit(f"the server is gone:\n{self.log.read_text()[-4000:]}")
            await asyncio.sleep(0.2)
        raise SystemExit(f"not at peace within {RECOVERY:g} s:\n{self.log.read_text()[-4000:]}")

    async def holdings(self) -> list[Held]:
        """At peace, without what is kept for later prompts."""
        await self.at_peace()
        await self.get("/v1/cache", "DELETE")
        await asyncio.sleep(2.0)
        return held(self.process.pid)


def _few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


# -- the campaign ------------------------------------------------------------------------------


async def alone(asker: Asker, asked: list[Question]) -> dict[str, Choices]:
    """Every question by itself, streamed and not."""
    found = {}
    for question in asked:
        found[question.name] = await asker.ask(question, stream=False)
        streamed = await asker.ask(question, stream=True)
        if question.api != "chat" or "tools" not in question.body:  # a stream cuts arguments
            problem = difference(streamed, found[question.name])
            assert problem is None, f"{question.name}, streamed: {problem}"
    return found


async def watch(server: Besieged, tally: Tally, ended: asyncio.Event) -> None:
    """Asks for /health all the time, and says how it goes now and then."""
    told = time.monotonic()
    while not ended.is_set():
        start = time.monotonic()
        try:
            status, _ = await asyncio.wait_for(server.get("/health"), 60)
        except (OSError, Broken, TimeoutError) as error:
            tally.bad(f"/health: {error!r}")
        else:
            tally.health[status] += 1
        tally.slowest_health = max(tally.slowest_health, time.monotonic() - start)
        if server.process.poll() is not None:
            tally.bad(f"the front ended with {server.process.returncode}")
            return ended.set()
        if time.monotonic() - told > 20:
            told = time.monotonic()
            print(tally.line, flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), 0.2)


async def load(
    server: Besieged,
    asker: Asker,
    attacker: Attacker,
    options: Options,
    seconds: float,
    faults: Faults | None,
) -> None:
    chance, ended, asked = random.Random(options.seed), asyncio.Event(), questions()
    work = [
        *(client(asker, asked, chance.getrandbits(32), ended) for _ in range(options.clients)),
        *(attack(attacker, chance.getrandbits(32), ended) for _ in range(options.attackers)),
        watch(server, asker.tally, ended),
    ]
    if faults is not None:
        work.append(strike(faults, options.seed, options.every, ended))
    asyncio.get_running_loop().call_later(seconds, ended.set)
    await asyncio.gather(*work)


async def campaign(
    server: Besieged, options: Options, tally: Tally, listener: int, media: str
) -> list[str]:
    """Returns what is left over."""
    asked = questions()
    expected: dict[str, Choices] = {}
    asker = Asker(server.port, KEYS, expected, tally)
    attacker = Attacker(server.port, cases(listener, media), tally)
    await server.at_peace()
    expected.update(await alone(asker, asked))
    for name, choices in solo([it for it in asked if it.plain]).items():
        if problem := difference(expected[name], choices):
            tally.bad(f"{name}: the server and LLM differ: {problem}")
    print(f"{len(asked)} questions answered alone; warming up", flush=True)
    await load(server, asker, attacker, options, options.warm_up, None)
    before = await server.holdings()
    faults = Faults(server.process.pid, server.port, OPERATOR, server.model, server.disk, tally)
    faults.pids("engine", "worker")
    print("faults begin", flush=True)
    await load(server, asker, attacker, options, options.seconds, faults)
    await server.at_peace()
    print("faults are over", flush=True)
    for question in asked:
        await asker.patient(question, random.Random(0))
    await load(server, asker, attacker, options, options.warm_up, None)
    after = await server.holdings()
    await told_by_metrics(server)
    for when, found in (("before", before), ("after", after)):
        for it in found:
            print(f"{when}: {it.role} {it.memory / 1e6:.0f} MB, {it.descriptors} descriptors")
    left = left_over(before, after)
    faults.pids("engine", "worker")
    server.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.process.wait, 120)
    left += [f"the server ended with exit code {code}"] if code else []
    left += [f"process {pid} is left" for pid in faults.seen if alive(pid)]
    return left


async def told_by_metrics(server: Besieged) -> None:
    _, payload = await server.get("/metrics")
    wanted = re.compile(r"^bushel:(event_loop|log_lines|engine_restarts|worker).*$", re.MULTILINE)
    for line in wanted.finditer(payload.decode()):
        print(f"metrics: {line.group()}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.siege")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--attackers", type=int, default=3)
    parser.add_argument("--every", type=float, default=12, help="seconds between two faults")
    parser.add_argument("--warm-up", type=float, default=45)
    options = Options(**vars(parser.parse_args()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and leave nothing behind
    tally, listener = Tally(), Listener()
    with tempfile.TemporaryDirectory(prefix="bushel-siege-") as folder, media_folder() as media:
        server = Besieged(Path(folder), f"{media}/media")
        try:
            left = asyncio.run(campaign(server, options, tally, listener.port, f"{media}/media"))
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
            server.disk.close()
            log = server.log.read_text(errors="replace")
    if "Traceback" in log:
        at = log.index("Traceback")
        tally.bad(f"a traceback in the log:\n{log[max(0, at - 500) : at + 3000]}")
    print(tally.table())
    for what in left:
        print(f"LEFT OVER: {what}")
    good = not tally.wrong_count and not left and not listener.calls
    print(f"seed {options.seed}: {tally.line}: {'all well' if good else 'NOT WELL'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
