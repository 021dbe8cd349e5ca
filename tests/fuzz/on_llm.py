"""A workload on `bushel.LLM`, the same on every machine: reads take steps, and time is counted."""

from __future__ import annotations

import concurrent.futures
import itertools
import random
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from bushel import LLM, BushelError, Handle
from bushel.engine import engine as engine_module
from bushel.engine.step_costs import Stopwatch
from tests.fuzz.answers import answer_of, compare
from tests.fuzz.counts import Outcome
from tests.fuzz.late_disk import LateDisk
from tests.fuzz.solo_answers import Alone, cuts_matter, footprint_of, opened, state_bytes
from tests.fuzz.workload import Act, Settings, Workload

_MOST_STEPS = 20_000  # until all have answered; what is drawn needs some hundreds
_LONGEST_ROW = 420  # tokens of the longest prompt and reply that are drawn
_FILE = 3000  # bytes beside its tokens, at most


@dataclass
class Sent:
    ask: int
    handle: Handle
    aborted: bool = False


def sizes(family: str, settings: Settings) -> dict[str, Any]:
    """Room in tokens and rows, as bytes of this family."""
    token, snapshot = state_bytes(family)

    def room(tokens: int, each: int) -> int:
        return tokens * token + (tokens // 40 + bool(tokens)) * (snapshot + each)

    found: dict[str, Any] = {}
    if settings.room is not None:
        found["cache_memory"] = room(settings.room, 0)
    if settings.files and settings.disk is not None:
        found["cache_disk"] = room(settings.disk, 4 * _FILE)
    if settings.rows is not None:
        chunk = settings.prefill_chunk if cuts_matter(family) else 16
        peak = footprint_of(family).peak(settings.rows, _LONGEST_ROW, chunk)
        found["memory_limit"] = int(peak * 1.1)
    return found


class OnLLM:
    def __init__(self, workload: Workload, *, integrity: bool = True):
        self._workload, self._integrity = workload, integrity
        self._alone = Alone(workload.family, workload.asks, workload.settings.prefill_chunk)
        self._folder = tempfile.mkdtemp(prefix="bushel-fuzz-")
        self._rng = random.Random(workload.seed)
        self._disk: LateDisk | None = None
        self._llm_closed = True
        self._sent: list[Sent] = []
        self._outcome = Outcome()
        self._outcome.counts.families.add(workload.family)

    def play(self) -> Outcome:
        outcome = self._outcome
        outcome.counts.workloads = 1
        late = patch.object(engine_module, "LATE", self._workload.settings.late)
        try:
            with late:
                self._llm = self._open()
                for act in (*self._workload.acts, Act("drain")):
                    self._do(act)
                self._close()
        except BushelError as error:
            outcome.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            if not self._llm_closed:
                self._llm.close()
            shutil.rmtree(self._folder)
        outcome.counts.mismatches = len(outcome.wrong)
        return outcome

    # -- one engine after the other ----------------------------------------------------------

    def _open(self) -> LLM:
        settings, family = self._workload.settings, self._workload.family
        options = {**sizes(family, settings)}
        for name in ("prefill_chunk", "max_batch", "snapshot_every", "token_gap", "start_wait"):
            options[name] = getattr(settings, name)
        options |= {"order": settings.order}
        if settings.files:
            options["cache_dir"] = self._folder
        with (
            patch("bushel.engine.build.Disk", self._late_disk),
            # As on a GPU, as far as who is asked to try pages.
            patch("bushel.engine.attention_route.ON_CPU", not settings.pages),
        ):
            llm = opened(family, **options)
        self._llm_closed = False
        assert llm._engine is not None
        ticks = itertools.accumulate(iter(partial(self._rng.uniform, 0.0, 0.02), None))
        llm._engine._times.clock = partial(next, ticks)  # type: ignore[assignment]
        llm._engine._times.stopwatch = Stopwatch(behind=False)
        return llm

    def _late_disk(self, *args: Any) -> LateDisk:
        settings = self._workload.settings
        self._disk = LateDisk(self._rng, settings.delays, settings.slow_writes, *args)
        return self._disk

    def _close(self) -> None:
        stats = self._llm.cache_stats()
        if stats["on"]:
            self._outcome.counts.disk_hits += stats["hits"].get("disk", 0)
            self._outcome.counts.evictions += stats["evicted"]
        self._llm.close()
        self._llm_closed = True
        self._disk = None

    # -- acts --------------------------------------------------------------------------------

    def _do(self, act: Act) -> None:
        match act.what:
            case "submit":
                handle = self._llm.submit(
                    self._alone.request(act.number), self._alone.params(act.number)
                )
                self._sent.append(Sent(act.number, handle))
            case "step":
                for _ in range(act.number):
                    self._step()
            case "abort":
                for sent in [it for it in self._sent if it.ask == act.number]:
                    self._abort(sent)
            case "drain":
                self._drain()
            case "clear":
                self._llm.clear_cache()
                self._check()
            case "restart":
                for sent in self._sent:
                    self._abort(sent)
                self._drain()
                self._close()
                self._llm = self._open()
                self._outcome.counts.restarts += 1

    def _abort(self, sent: Sent) -> None:
        if not sent.handle.done:
            sent.aborted = True
            sent.handle.abort()
            self._outcome.counts.aborts += 1
            self._check()

    def _drain(self) -> None:
        for _ in range(_MOST_STEPS):
            if all(sent.handle.done for sent in self._sent):
                break
            self._step()
        else:
            raise BushelError("it does not end")
        for sent in self._sent:
            self._judge(sent)
        self._sent.clear()

    def _step(self) -> None:
        engine = self._llm._engine
        assert engine is not None
        waiting = engine._queue.waiting.values()
        concurrent.futures.wait([it.compiling for it in waiting if it.compiling is not None])
        self._llm.step()
        if self._disk is not None:
            self._disk.step()
        self._check()

    def _check(self) -> None:
        if self._integrity:
            self._llm.check_integrity()

    def _judge(self, sent: Sent) -> None:
        got = answer_of(sent.handle.output)
        greedy = self._workload.asks[sent.ask].greedy
        alone = self._alone.answer(sent.ask)
        verdict = compare(self._workload.family, got, alone, aborted=sent.aborted, greedy=greedy)
        self._outcome.judge(sent.ask, got, alone, verdict)
