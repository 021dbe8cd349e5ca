"""`bushel check` of the model that comes with Bushel, and of the user's: batched against alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bushel.check import Report, Result, check
from bushel.core.checkpoint import TINY
from bushel.core.status import attention_in_words
from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section
from bushel.engine.attention_route import choose_attention
from bushel.engine.batching_check import batching_fault
from bushel.models import Model, load

_ADVICE = (
    "Answers in company differ from those alone. Please report this; until then serve it with "
    "--max-num-seqs 1."
)


def section(options: DoctorOptions) -> Section:
    probe = tried if options.quick else checked
    probes = [Probe(f"check {TINY}", partial(probe, DoctorOptions(model=TINY)), seconds=120)]
    if options.model not in (None, TINY):
        name = f"check {options.model}"
        probes.append(Probe(name, partial(checked, options), seconds=240, long=True))
    return Section(probes)


def _load(options: DoctorOptions) -> Model:
    assert options.model is not None
    trust = options.trust_remote_code
    return load(options.model, dtype=options.dtype, trust_remote_code=trust)


def tried(options: DoctorOptions) -> Iterator[Finding]:
    """The short form, which every unknown family gets at load."""
    model = _load(options)
    routes = choose_attention(model, "auto")  # as when it is served
    fault = batching_fault(model)
    model.close()
    if fault is None:
        words = f"{model.name}: rows in a batch and alone agree, as tried at load"
        words += f" ({attention_in_words(routes)})" if routes else ""
        yield Finding("ok", "rows in a batch", words)
    else:
        yield Finding("wrong", "rows in a batch", f"{model.name}: {fault}", _ADVICE)


def checked(options: DoctorOptions) -> Iterator[Finding]:
    model = _load(options)
    report = check(model)
    model.close()
    for result in report.results:
        yield _finding(report, result)
    lane = f"one row at a time: {report.lane_reason}" if report.lane_reason else "in batches"
    words = f"{report.model} in {report.precision} is served {lane}"
    yield Finding("ok", "lane", " ".join([words, *report.notes]))


def _finding(report: Report, result: Result) -> Finding:
    if result.not_run is not None:
        return Finding("skipped", result.scenario, f"{report.model}: {result.not_run}")
    words = (
        f"{report.model}: {result.rows} rows, {result.batch} at a time, log-probabilities "
        f"{result.difference:.1e} apart where {report.bound:g} is rounding"
    )
    if report.good(result):
        return Finding("ok", result.scenario, words)
    return Finding("wrong", result.scenario, "; ".join([words, *result.faults[:3]]), _ADVICE)
