"""`bushel check`: does this model, on this machine, say in company what it says alone?

Rows go through the engine, and then each by itself through the library's plain state, forced
along the tokens that the engine chose (`engine.solo_run`). So every step is compared, also after
a near-tie of half precision that went the other way: a chosen token has to be the likeliest
of the row alone, or be behind it by no more than rounding explains.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

import mlx.core as mx
import numpy as np
from PIL import Image

from bushel.cache.layer_report import LayerReport, layer_reports, span
from bushel.cache.prefix import PrefixCache
from bushel.chat.prompt import prepare
from bushel.core import Decoding, Event, Prepared, Request, SamplingParams, TokenLogprob
from bushel.core.params import resolve
from bushel.core.status import attention_in_words
from bushel.core.text_alone import text_alone_because
from bushel.engine.attention_route import choose_attention
from bushel.engine.batching_check import (
    BatchTrial,
    single_because,
    try_batch,
    unknown,
    windows,
    words,
)
from bushel.engine.build import reuse_fault
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.engine.row_state import new_row, ran_a_token
from bushel.engine.sampling.draw import CANDIDATES
from bushel.engine.solo_run import SoloRun, bound, precision
from bushel.models import Model, State
from bushel.models.known_families import cuts_matter, rotation_borders

TOKENS = 24  # of a reply
# Prompts around a border at so many tokens still take seconds; one farther away is not crossed.
FARTHEST = 4096
_WHOLE = 1 << 20  # a chunk that any prompt fits
_FEW = 8  # tokens of a reply to what was asked before
_KEPT = 1 << 31, 1 << 20  # bytes and buffers for what is kept of prompts
_LENGTHS = (17, 1, 70, 9, 150, 40, 2, 33)
_PICTURES = ((96, 64), (64, 48))


def _nothing(_: str) -> None:
    pass


@dataclass(frozen=True)
class Result:
    """What one scenario found. `difference` is of log-probabilities, the largest."""

    scenario: str
    rows: int = 0
    batch: int = 0  # rows in the largest decode step
    difference: float = 0.0
    faults: tuple[str, ...] = ()
    not_run: str | None = None  # why


@dataclass(frozen=True)
class Report:
    model: str
    precision: str
    bound: float
    lane_reason: str | None  # why `LLM` serves rows one at a time, if it does
    reuse_reason: str | None  # why nothing of prompts is reused, if nothing is
    layers: tuple[LayerReport, ...]
    trial: BatchTrial | None  # of a family that is not known, as at load
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float:
        """The largest there is; not a number stays one."""
        return float(np.max([0.0, *(result.difference for result in self.results)]))

    def good(self, result: Result) -> bool:
        # Not a number is not within the bound.
        return not result.faults and result.difference <= self.bound

    @property
    def ok(self) -> bool:
        return all(self.good(result) for result in self.results)


def check(model: Model, progress: Callable[[str], None] = _nothing) -> Report:
    """Runs every scenario that applies; leaves the model as it was. `progress` hears of each."""
    before = model.pages
    try:
        return _Check(model, progress).report()
    finally:
        model.pages = before


@dataclass
class _Row:
    """A prompt on its way through the engine, and what came back."""

    prompt: Prepared
    limit: int = TOKENS
    logprobs: list[TokenLogprob] = field(default_factory=list)
    end: str = "no finish"

    @property
    def name(self) -> str:
        return f"the {'image' if self.prompt.has_media else 'text'} of {len(self.prompt.ids)}"

    def take(self, event: Event) -> None:
        self.logprobs.extend(event.logprobs)
        if event.finish_reason is not None:
            self.end = event.error or event.finish_reason


class _Check:
    def __init__(self, model: Model, progress: Callable[[str], None]):
        self.model = model
        self._progress = progress
        progress("trying how rows share a batch")
        self._routes = choose_attention(model, "auto")  # as when it is served
        self._trial = try_batch(model) if unknown(model) else None
        self._reuse_fault = reuse_fault(model)
        self.bound = bound(model)
        self._uncut = cuts_matter(model.network)
        context = model.context or math.inf
        borders = {*windows(model.make_state()), *rotation_borders(model.network)}
        borders.update(model.host.context_borders)
        near = {each for each in borders if 0 < each <= min(FARTHEST, context - 2 * TOKENS)}
        self._not_crossed = sorted(each for each in borders - near if 0 < each < context)
        wanted = _around(*sorted(near)) if near else _LENGTHS
        lengths = [max(1, int(min(length, context - TOKENS))) for length in wanted]
        self._texts = [Prepared(words(model, at, length)) for at, length in enumerate(lengths)]
        self._alone: dict[int, tuple[list[int], list[np.ndarray]]] = {}

    def report(self) -> Report:
        return Report(
            model=self.model.name,
            precision=str(precision(self.model)).rpartition(".")[2],
            bound=self.bound,
            lane_reason=self._lane_reason(),
            reuse_reason=self._reuse_fault,
            layers=layer_reports(self._state()),
            trial=self._trial,
            results=tuple(self._results()),
            notes=tuple(self._notes()),
        )

    def _state(self) -> State:
        """The library's own, of a row that has run a token: some models replace what was there."""
        state = self.model.make_state()
        self.model.forward(mx.array([[0]]), [0], state)
        return state

    def _lane_reason(self) -> str | None:
        if self._trial is not None:
            return self._trial.fault
        return self._engine(1).single_because or single_because(self.model)

    def _results(self) -> Iterator[Result]:
        for chunk in (_WHOLE,) if self._uncut else (512, 64):
            rows = [_Row(text) for text in self._texts]
            pieces = "uncut" if chunk == _WHOLE else f"chunk {chunk}"
            yield self._run(f"{len(rows)} lengths, {pieces}", rows, chunk)
        # Replies of very different lengths: rows leave while others are still to come.
        limits = itertools.cycle((TOKENS, 5, 17, 9))
        rows = [_Row(text, limit) for text, limit in zip(self._texts, limits, strict=False)]
        yield self._run("joins and leaves", rows, _WHOLE if self._uncut else 512, every=3)
        if self._reuse_fault is None:
            yield self._again("kept and restored")
        if self.model.host.sees:
            yield self._images("images beside text")

    def _notes(self) -> Iterator[str]:
        if "pages" in self._routes.values():
            yield f"Rows that share a batch: {attention_in_words(self._routes)}."
        if self._uncut:
            yield f"Prompts ran uncut, because cuts change this family's answers: {self._uncut}."
        for border in self._not_crossed:
            yield f"Not checked: contexts of more than {border} tokens, where attention changes."
        if why := text_alone_because(self.model.host.config):
            yield f"It takes no pictures: {why}."

    def _images(self, scenario: str) -> Result:
        try:
            pictures = [prepare(self.model.host, _picture_question(*size)) for size in _PICTURES]
            for picture in pictures:
                self.model.embed(picture)
        except Exception as error:  # a template without images, a processor that wants others
            return Result(scenario, not_run=" ".join(str(error).split()))
        short, long = self._texts[0], self._texts[2]
        rows = [_Row(prompt) for prompt in (short, pictures[0], long, pictures[1], self._texts[1])]
        return self._run(scenario, rows, _WHOLE if self._uncut else 64, every=1)

    def _again(self, scenario: str) -> Result:
        """Prompts that were asked before go on from what was kept of them."""
        prefixes = PrefixCache(partial(new_row, self.model), ran_a_token(self.model), *_KEPT)
        engine = self._engine(512, prefixes)
        self._serve(engine, [_Row(text, _FEW) for text in self._texts[:4]], every=1)
        before = prefixes.reused_tokens
        rows = [_Row(text, _FEW) for text in self._texts[:4]]
        self._progress(f"{scenario}: rows together")
        self._serve(engine, rows, every=1)
        faults = () if prefixes.reused_tokens > before else ("nothing was restored",)
        return self._compared(scenario, engine, rows, faults)

    def _run(self, scenario: str, rows: Sequence[_Row], chunk: int, *, every: int = 0) -> Result:
        """Serve the rows, each so many steps after the one before it, and compare."""
        self._progress(f"{scenario}: rows together")
        engine = self._engine(chunk)
        self._serve(engine, rows, every)
        return self._compared(scenario, engine, rows)

    def _serve(self, engine: Engine, rows: Sequence[_Row], every: int) -> None:
        for at, row in enumerate(rows):
            engine.submit(Request(str(at), row.prompt, (self._decoding(row.limit),)))
            for _ in range(every):
                _deliver(engine.step(), rows)
        while not engine.idle:
            _deliver(engine.step(), rows)

    def _compared(
        self, scenario: str, engine: Engine, rows: Sequence[_Row], known: Sequence[str] = ()
    ) -> Result:
        self._progress(f"{scenario}: each row alone")
        faults = [*known, *(fault for row in rows for fault in self._faults(row))]
        if engine.single_because is None and engine.max_decode_batch < 2:
            faults.append("no two rows ever met")
        difference = float(np.max([self._difference(row) for row in rows]))
        return Result(scenario, len(rows), engine.max_decode_batch, difference, tuple(faults))

    def _engine(self, chunk: int, prefixes: PrefixCache | None = None) -> Engine:
        # Without bounds on time, what meets whom does not depend on the machine's speed.
        policy = Policy(prefill_chunk=chunk, token_gap=math.inf, start_wait=math.inf)
        return Engine(self.model, policy, prefixes=prefixes)

    def _decoding(self, limit: int) -> Decoding:
        model = self.model
        params = SamplingParams(
            temperature=0,
            max_tokens=limit,
            repetition_penalty=1.0,
            ignore_eos=True,
            logprobs=min(CANDIDATES, model.vocab),
        )
        return resolve(params, model.defaults, vocab=model.vocab, end_ids=model.tokenizer.end_ids)

    def _faults(self, row: _Row) -> Iterator[str]:
        if row.end != "length" or len(row.logprobs) != row.limit:
            yield f"{row.name} ended after {len(row.logprobs)} of {row.limit} tokens: {row.end}"
        for at, (entry, alone) in enumerate(self._pairs(row)):
            best = int(alone.argmax())
            if not alone[best] - alone[entry.token_id] <= self.bound:
                yield f"{row.name} has token {entry.token_id} at {at}, where alone it has {best}"
                return

    def _difference(self, row: _Row) -> float:
        worst = [0.0]
        for entry, alone in self._pairs(row):
            ids, values = zip((entry.token_id, entry.logprob), *entry.top, strict=True)
            one, two = alone[list(ids)], np.array(values, np.float32)
            worst.append(float(np.where(one == two, 0.0, np.abs(one - two)).max()))
        return float(np.max(worst))

    def _pairs(self, row: _Row) -> Iterable[tuple[TokenLogprob, np.ndarray]]:
        tokens = [entry.token_id for entry in row.logprobs]
        return zip(row.logprobs, self._forced(row.prompt, tokens), strict=True)

    def _forced(self, prompt: Prepared, tokens: list[int]) -> list[np.ndarray]:
        """Log-probabilities [V] that a row alone finds before each of these tokens."""
        known, logprobs = self._alone.get(id(prompt), ([], []))
        if known[: len(tokens)] != tokens:
            solo = SoloRun(self.model, self.model.embed(prompt))
            logprobs = [np.array(solo.run(token)) for token in (None, *tokens[:-1])]
            self._alone[id(prompt)] = tokens, logprobs
        return logprobs[: len(tokens)]


def _deliver(events: Iterable[Event], rows: Sequence[_Row]) -> None:
    for event in events:
        rows[int(event.request_id)].take(event)


def _around(*borders: int) -> tuple[int, ...]:
    """Below, at and above the farthest, in no order; while they decode, one crosses it and one the
    border before it."""
    far, before = borders[-1], borders[-2] if len(borders) > 1 else 41
    return far + 1, 1, far + far // 4 + 30, 9, far, before - 1, 2, far - 1


def _picture_question(width: int, height: int) -> dict[str, object]:
    """A question about a picture with a different colour everywhere."""
    down, across = np.mgrid[0:height, 0:width]
    colours = np.stack([7 * down, 5 * across, 3 * (down + across)], axis=-1) % 256
    image = {"type": "image_url", "image_url": {"url": Image.fromarray(colours.astype(np.uint8))}}
    question = {"type": "text", "text": "What is in this picture?"}
    return {"messages": [{"role": "user", "content": [image, question]}]}


def as_json(report: Report) -> dict[str, object]:
    """The report for scripts. JSON has no number that is none: such a difference is null."""
    results = [
        {
            **asdict(result),
            "difference": _number(result.difference),
            "ok": report.good(result),
        }
        for result in report.results
    ]
    return {
        "ok": report.ok,
        "model": report.model,
        "precision": report.precision,
        "bound": report.bound,
        "lane": "single" if report.lane_reason else "batch",
        "lane_reason": report.lane_reason,
        "reuse": report.reuse_reason is None,
        "reuse_reason": report.reuse_reason,
        "layers": [asdict(layers) for layers in report.layers],
        "trial": None if report.trial is None else trial_json(report.trial),
        "results": results,
        "notes": list(report.notes),
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def trial_json(trial: BatchTrial) -> dict[str, object]:
    difference, allowed = _number(trial.difference), _number(trial.bound)
    return {"difference": difference, "bound": allowed, "fault": trial.fault}


def table(report: Report) -> str:
    """The report as people read it."""
    title = f"{report.model}, {report.precision}: log-probabilities may differ by {report.bound:g}."
    heads = ("scenario", "rows", "batch", "difference", "verdict")
    lines = [title, "", "{:22} {:>4} {:>5} {:>10}  {}".format(*heads)]
    faults: list[str] = []
    for result in report.results:
        name = result.scenario
        if result.not_run is not None:
            lines.append(f"{name:22} {'-':>4} {'-':>5} {'-':>10}  not run: {result.not_run}")
            continue
        verdict = "equal" if report.good(result) else "DIFFERENT"
        numbers = f"{result.rows:4} {result.batch:5} {result.difference:10.1e}"
        lines.append(f"{name:22} {numbers}  {verdict}")
        faults += [f"{name}: {fault}" for fault in result.faults]
    lane = f"single ({report.lane_reason})" if report.lane_reason else "batch"
    partly = " in all that was run" if any(outcome.not_run for outcome in report.results) else ""
    verdict = f"Equal to solo{partly}" if report.ok else "Not equal to solo"
    said = [*faults, *([""] if faults else []), *_state_lines(report), *report.notes]
    return "\n".join([*lines, "", *said, f"{verdict}; lane: {lane}."])


def _state_lines(report: Report) -> Iterator[str]:
    """What layers keep, and how the family stood its trial."""
    yield "{:22} {:>8}  {:18} {:6} {}".format("state", "layers", "kind", "batch", "kept")
    for each in report.layers:
        batch, kept = "yes" if each.batches else "NO", each.kept or "NO"
        yield f"{each.state:22} {len(each.layers):8}  {each.kind:18} {batch:6} {kept}"
    for each in report.layers:
        if each.needs:
            where = f"Layers {span(each.layers)} keep {each.state} of {each.module}"
            yield f"{where}: needs {each.needs}."
    yield ""
    if report.trial is not None:
        yield _trial_line(report.trial)
    yield f"Here at most {report.difference:.1e} apart, where {report.bound:g} is rounding."
    why = report.reuse_reason
    yield "Prefixes: reused." if why is None else f"Prefixes: not reused ({why})."


def _trial_line(trial: BatchTrial) -> str:
    head = "The family is not known, and was tried as at load: "
    if math.isnan(trial.difference) and trial.fault is not None:
        return f"{head}{trial.fault}."
    return f"{head}{trial.difference:.1e} apart, where {trial.bound:g} is rounding."
