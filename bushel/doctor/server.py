"""A server over HTTP: it answers, is killed, frozen and flooded, and answers again.

It serves the small model that comes with Bushel: what is tried here are its processes.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from bushel.core import BushelError
from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section, duration, size
from bushel.doctor.serve_process import ServeProcess

_READY = 120.0  # seconds, with every sampler's first use
_AGAIN = 90.0
# An engine is replaced after so many without progress; a server waits for 30.
_FLAGS = ("--hang-seconds", "4", "--workers", "1")
_FLOOD = 192  # requests at most
# Memory that may stay: of MLX, which is counted; and of processes, which is not so exact.
_LEFT_OVER = 16 << 20
_RESIDENT_SHARE, _RESIDENT = 0.25, 128 << 20
_NO_START = "Its last words should say why; if they do not, please report this."
_REPORT = "Please report this, with the whole of this page."


def section(options: DoctorOptions) -> Section:
    server = _Server(options)
    return Section(
        [
            Probe("start", server.start, seconds=_READY + 10),
            server.probe("answer", server.answer, 90),
            server.probe("engine killed", server.killed, _AGAIN),
            server.probe("engine frozen", server.frozen, _AGAIN, long=True),
            server.probe("flood", server.flood, 120),
            server.probe("end", server.end, 30),
        ],
        server.close,
    )


class _Server:
    """Started when it is first needed: a probe that was lost has taken it along."""

    def __init__(self, options: DoctorOptions) -> None:
        self._options = options
        self._process: ServeProcess | None = None
        self._failed = False  # to start

    def probe(
        self,
        name: str,
        run: Callable[[ServeProcess], Iterator[Finding]],
        seconds: float,
        *,
        long: bool = False,
    ) -> Probe:
        """One that a server is needed for."""

        def with_server() -> Iterator[Finding]:
            if self._failed:
                yield Finding("skipped", name, "the server did not start")
            else:
                yield from run(self._ready())

        return Probe(name, with_server, seconds + _READY, long)

    def _ready(self) -> ServeProcess:
        if self._process is None:
            self._process = ServeProcess(*_FLAGS)
        self._process.ready(_READY)
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def start(self) -> Iterator[Finding]:
        begun = time.perf_counter()
        try:
            server = self._ready()
        except BushelError as error:
            self._failed = True
            yield Finding("wrong", "start", str(error), _NO_START)
            return
        words = f"ready on 127.0.0.1:{server.port} after {duration(time.perf_counter() - begun)}"
        yield Finding("ok", "start", words)

    def answer(self, server: ServeProcess) -> Iterator[Finding]:
        begun = time.perf_counter()
        reply, again = server.ask(), server.ask()
        words = f"{reply!r}, twice in {duration(time.perf_counter() - begun)}"
        if reply and reply == again:
            yield Finding("ok", "answer", words)
        else:
            yield Finding("wrong", "answer", f"{words}; then {again!r}", _REPORT)

    def killed(self, server: ServeProcess) -> Iterator[Finding]:
        return _recovers(server, "engine killed", signal.SIGKILL)

    def frozen(self, server: ServeProcess) -> Iterator[Finding]:
        return _recovers(server, "engine frozen", signal.SIGSTOP)

    def flood(self, server: ServeProcess) -> Iterator[Finding]:
        """Twice the same: what the first one leaves is what a server that was used takes."""
        clients, seconds = (8, 0.5) if self._options.quick else (32, 8.0)
        _send(server, clients, seconds)
        before, resident = _settled(server), server.resident()
        begun = time.perf_counter()
        outcomes = _send(server, clients, seconds)
        took = time.perf_counter() - begun
        after, later = _settled(server), server.resident()
        words = (
            f"{outcomes.total()} requests, {clients} at once, in {duration(took)}; MLX holds "
            f"{size(after)}, {size(before)} before; the processes {size(later)}, {size(resident)}"
        )
        if set(outcomes) != {"served"}:
            told = ", ".join(f"{count} x {outcome}" for outcome, count in outcomes.items())
            yield Finding("wrong", "flood", f"{words}; {told}", _REPORT)
        elif after > before + _LEFT_OVER or later > resident * (1 + _RESIDENT_SHARE) + _RESIDENT:
            yield Finding("wrong", "flood", f"{words}: not given back", _REPORT)
        else:
            yield Finding("ok", "flood", words)

    def end(self, server: ServeProcess) -> Iterator[Finding]:
        begun = time.perf_counter()
        left = server.close()
        self._process = None
        words = f"all its processes are gone after {duration(time.perf_counter() - begun)}"
        if left:
            words = f"processes that did not end with it, and were killed: {left}"
            yield Finding("wrong", "end", words, _REPORT)
        else:
            yield Finding("ok", "end", words)


def _recovers(server: ServeProcess, name: str, number: signal.Signals) -> Iterator[Finding]:
    before = server.ask()
    begun = time.perf_counter()
    pid = server.signal_engine(number)

    def replaced() -> str | None:
        return server.ask() if server.status()["engine"]["pid"] not in (None, pid) else None

    after = server.until(replaced, _AGAIN, "it answers again")
    words = f"{number.name}; it answers again after {duration(time.perf_counter() - begun)}"
    if after == before:
        yield Finding("ok", name, words)
    else:
        yield Finding("wrong", name, f"{words}, but {after!r} and not {before!r}", _REPORT)


def _settled(server: ServeProcess) -> int:
    """Bytes that MLX uses when nothing runs and nothing is kept."""
    server.until(lambda: True if not server.status()["running"] else None, 30, "nothing runs")
    server.forget()
    return int(server.status()["engine"]["memory"]["active_bytes"])


def _send(server: ServeProcess, clients: int, seconds: float) -> Counter[str]:
    """As many requests as they begin in time, each of another text; how these ended."""
    end = time.monotonic() + seconds

    def one(number: int) -> str | None:
        if time.monotonic() > end:
            return None
        words = f"{number} " * (1 + number * 7 % 13)
        return _outcome(lambda: server.ask(words, tokens=4 + number % 16))

    with ThreadPoolExecutor(clients) as threads:
        return Counter(filter(None, threads.map(one, range(_FLOOD))))


def _outcome(ask: Callable[[], str]) -> str:
    try:
        ask()
    except BushelError as error:
        return str(error)
    return "served"
