"""The parts of the benchmark: engines in one process, servers over HTTP, sessions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import mlx.core as mx

from benchmarks.field.cases import (
    Case,
    Question,
    Words,
    agent_case,
    image_case,
    load_case,
    loop_case,
)
from benchmarks.field.in_process import SIDES, run_in_process
from benchmarks.field.limits import BareLoops, Machine, Sizes, limit, sizes_of
from benchmarks.field.loads import Load, Scale, make_load, spread_over
from benchmarks.field.over_http import send
from benchmarks.field.records import Reply, Run, percentile
from benchmarks.field.servers import Server, servers
from benchmarks.field.solo import Solo
from benchmarks.field.table import OURS, Result, table
from benchmarks.rounds import rounds
from bushel.models import Model

MOST_ROWS = 32  # that run together, by the defaults of all sides
# Bytes of freed buffers that MLX keeps here while servers have the device: two processes that
# together keep more than it has are slowed down a hundredfold.
_KEPT = 2 << 30


@dataclass(frozen=True)
class Setting:
    """How the run was asked for."""

    scale: Scale
    dtype: mx.Dtype
    rounds: int
    session_rounds: int
    warm: bool  # a round of each load that does not count; without, of the first one alone
    literal: bool  # replies over HTTP are compared with a solo loop, too
    sides: Sequence[str]
    patience: float  # seconds for a server to start, and for one load
    checked: int | None = None  # rounds whose replies are checked; None: all

    def checks(self, at: int) -> bool:
        """Whether replies of that round are held to solo ones."""
        return self.checked is None or at < self.checked


class Subject:
    """A model that is measured: its limits, its bare loops, its solo replies."""

    def __init__(self, model: Model, machine: Machine, dtype: mx.Dtype, literal: bool):
        self.model, self.machine = model, machine
        self.sizes: Sizes = sizes_of(model)
        self.bare = BareLoops(model)
        self.solo = Solo(model.network, dtype, literal)

    def limit(self, load: Load, rows: int) -> float:
        return limit(load, self.sizes, self.machine, rows)

    def least(self, loads: Sequence[Load], rows: int) -> tuple[list[float], list[float]]:
        """Seconds of each load, each of lengths of its own: by the limit, and by bare loops."""
        counts = [min(rows, len(load)) for load in loads]
        limits = [self.limit(load, count) for load, count in zip(loads, counts, strict=True)]
        bares = [self.bare.together(load, count) for load, count in zip(loads, counts, strict=True)]
        return limits, bares

    def words(self) -> Words:
        return Words(self.model.tokenizer.hf, self.solo)

    def span(self, name: str, scale: Scale) -> float:
        """Seconds over which a load's requests come: what bare loops would take for it."""
        load = spread_over(make_load(name, self.model.vocab, scale), 0.0)
        return self.bare.together(load, min(MOST_ROWS, len(load)))


def show(part: str, load: str, at: int, side: str, run: Run) -> None:
    which = "warm-up" if at < 0 else f"round {at + 1}"
    failed = sum(bool(reply.error) for reply in run.replies)
    trouble = f", {failed} failed" if failed else ""
    first, gap = percentile(run.firsts, 50), percentile(run.gaps, 50)
    print(
        f"  {part}, {load}, {which}: {side} {run.speed:.1f} tok/s, first token {first:.2f} s, "
        f"largest gap {gap:.2f} s{trouble}",
        flush=True,
    )


def engine_part(subject: Subject, setting: Setting, loads: Sequence[str]) -> list[Result]:
    results = []
    for position, name in enumerate(loads):
        made = _engine_load(subject, setting, name, setting.warm or not position)
        print(table(made), flush=True)
        results += made
    return results


def _engine_load(subject: Subject, setting: Setting, name: str, warm: bool) -> list[Result]:
    span = subject.span(name, setting.scale)

    @cache
    def load(at: int) -> Load:
        return make_load(name, subject.model.vocab, setting.scale, seed=at, span=span)

    def run(side: str) -> Callable[[int], Run]:
        return lambda at: run_in_process(side, subject.model, load(at))

    runs = rounds(
        {side: run(side) for side in SIDES if side in setting.sides},
        setting.rounds,
        warm=warm,
        show=partial(show, "engine", name),
    )
    limits, bares = subject.least([load(at) for at in range(setting.rounds)], MOST_ROWS)
    return [
        Result(
            "engine",
            name,
            side,
            made,
            _added(
                subject.solo.count(load(at), one)
                for at, one in enumerate(made)
                if setting.checks(at)
            ),
            limits,
            bares,
            max(one.peak or 0 for one in made),
        )
        for side, made in runs.items()
    ]


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    together = Counter[str]()
    for one in counts:
        together.update(one)
    return dict(together)


def _asked(case: Case) -> Callable[[int], list[Question]]:
    """Each round's questions, made once and before any side is asked."""
    made: dict[int, list[Question]] = {}

    def questions(at: int) -> list[Question]:
        if at not in made:
            made[at] = case.make(at)
        return made[at]

    return questions


def _served(server: Server, model: str, case: Case, asked: list[Question], patience: float) -> Run:
    port = server.port(patience)
    if port is None:
        return Run([Reply(0.0, error=server.reason) for _ in asked], 1.0)
    asks = [question.ask for question in asked]
    with server.watched() as watch:
        run = send(port, model, asks, case.ids, case.clients, patience)
    return replace(run, peak=watch.peak)


def http_cases(
    part: str, folder: Path, subject: Subject | None, setting: Setting, cases: Sequence[Case]
) -> list[Result]:
    """subject: the model in the folder, where its limits can be told."""
    results: list[Result] = []
    start = time.perf_counter()
    mx.set_cache_limit(_KEPT)
    with servers(str(folder), setting.sides, setting.patience) as sides:
        print(f"  {part}: servers started in {time.perf_counter() - start:.0f} s", flush=True)
        for side in sides.values():
            if side.reason:
                print(f"  {part}: {side.name} does not serve the model: {side.reason}", flush=True)
        for position, case in enumerate(cases):
            warm = setting.warm or not position
            made = _http_case(part, str(folder), subject, setting, case, sides, warm)
            print(table(made), flush=True)
            results += made
    return results


def _http_case(
    part: str,
    model: str,
    subject: Subject | None,
    setting: Setting,
    case: Case,
    sides: dict[str, Server],
    warm: bool,
) -> list[Result]:
    asked = _asked(case)
    sides = {name: side for name, side in sides.items() if name == OURS or not case.alone}

    def run(side: Server) -> Callable[[int], Run]:
        return lambda at: _served(side, model, case, asked(at), setting.patience)

    runs = rounds(
        {name: run(side) for name, side in sides.items() if not side.reason},
        setting.session_rounds if case.session else setting.rounds,
        warm=warm,
        show=partial(show, part, case.name),
    )
    return [
        _result(part, case, side, runs.get(name, []), asked, subject, setting)
        for name, side in sides.items()
    ]


def _result(
    part: str,
    case: Case,
    side: Server,
    runs: list[Run],
    asked: Callable[[int], list[Question]],
    subject: Subject | None,
    setting: Setting,
) -> Result:
    verdicts, errors = Counter[str](), Counter[str]()
    for at, run in enumerate(runs):
        for question, reply in zip(asked(at), run.replies, strict=True):
            if reply.error:
                verdicts["failed"] += 1
            elif setting.checks(at):
                verdicts[question.check(reply)] += 1
            errors[reply.error] += bool(reply.error)
    notes = [side.reason] if side.reason else [error for error, _ in errors.most_common(1) if error]
    if side.deaths:
        notes.append(f"died {side.deaths} times")
    notes += [case.note] if case.note else []
    limits, bares = list[float](), list[float]()
    if subject is not None:
        arrivals = ([one.arrival for one in asked(at)] for at in range(len(runs)))
        loads = [tuple(one for one in each if one is not None) for each in arrivals]
        limits, bares = subject.least(loads, case.clients or MOST_ROWS)
    return Result(
        part,
        case.name,
        side.name,
        runs,
        dict(verdicts),
        limits,
        bares,
        max((run.peak or 0 for run in runs), default=0) or None,
        "; ".join(notes),
    )


def http_part(
    part: str,
    folder: Path,
    subject: Subject,
    setting: Setting,
    loads: Sequence[str],
    clients: Sequence[int],
    alone: Sequence[int],
    agent: bool,
) -> list[Result]:
    """clients, alone: of closed loops, with peers and without. agent: with a session of turns."""
    vocab, scale, words = subject.model.vocab, setting.scale, subject.words()
    cases = [load_case(name, words, vocab, scale, subject.span(name, scale)) for name in loads]
    cases += [loop_case(count, words, vocab, scale, alone=False) for count in clients]
    cases += [loop_case(count, words, vocab, scale, alone=True) for count in alone]
    cases += [agent_case(words, vocab, scale)] if agent else []
    return http_cases(part, folder, subject, setting, cases)


def image_part(setting: Setting) -> list[Result]:
    """A tiny hybrid that sees: only what is around the model shows in its times, so that no limit
    of the model's would tell anything."""
    from tests.families import checkpoint_dir

    folder = checkpoint_dir("qwen3_5_vl")
    case = image_case(folder, clients=4, count=16, new=max(8, 64 // setting.scale.reply))
    return http_cases("images", folder, None, setting, [case])
