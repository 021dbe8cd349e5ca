"""An engine that serves a subject's prompts, watched from outside, and the comparison."""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self
from unittest.mock import patch

import mlx.core as mx
import numpy as np

from bushel import LLM, SamplingParams
from bushel.core import Choice, FinishReason, Prepared
from bushel.core.footprint import Footprint
from bushel.core.options import Attention
from bushel.engine import prefill_pass
from bushel.engine.footprint import footprint
from bushel.engine.prefill_pass import PassRow
from bushel.llm import Handle
from bushel.models import Model, Prompt, load
from bushel.models.vision.vision_model import VisionModel

from ..families.checkpoint import VOCAB
from ..families.library_vision_loop import POSITION_STATE
from .drafting import oracle
from .subject import Row, Subject

# Largest difference of a log-probability. Float32 rounding is 1e-5 to 7e-5.
BOUND = 1e-4
# Families whose own rounding is larger; in float64 all scenarios of both agree to 2e-13.
# gemma3_text comes to 1.04e-4; its solo loop in float32 is 1.5e-4 from that in float64.
# glm5_next comes to 2.4e-4 or to 3e-5, by how the BLAS adds; its solo loop in float32 is up to
# 1.9e-4 from that in float64. Its weights move a reply by up to 2,500 times as much as they move,
# in proportion from 1e-10 to 1e-6: no expert and no pool is chosen otherwise.
WIDER = {"gemma3_text": 2e-4, "glm5_next": 5e-4}


@dataclass(frozen=True)
class Result:
    difference: float  # largest of all compared log-probabilities; not a number is a fault too
    faults: tuple[str, ...]
    largest_batch: int  # rows in one call of the model
    single_because: str | None = None
    bound: float = BOUND

    @property
    def ok(self) -> bool:
        return not self.faults and self.difference <= self.bound

    def __str__(self) -> str:
        return f"difference {self.difference:.1e}; " + ("; ".join(self.faults) or "no fault")


@lru_cache(maxsize=8)
def loaded(path: str, **settings: Any) -> Model:
    """What engines share: to read a checkpoint takes as long as what most tests do with it.

    A mistake that is made at load has to clear it.
    """
    model = load(path, **settings)
    model.close = lambda: None  # type: ignore[method-assign]
    return model


@lru_cache(maxsize=8)
def measured(model: Model, columns: int = 0) -> Footprint:
    """A model's sizes, which do not change while it is loaded."""
    return footprint(model, columns)


class Watch:
    """What the model is asked to do, seen at the model and not told by the engine."""

    def __init__(self, llm: LLM, *, garbage: bool):
        assert llm._engine is not None
        self.model: Any = llm._engine.model
        network = self.model.network
        sees = isinstance(self.model, VisionModel)
        self.target: Any = network.language_model if sees else network
        self.garbage = garbage
        self.batches: list[int] = []  # rows of each call
        self.tokens = 0  # of all calls
        self.pieces: list[tuple[Prompt, int, int]] = []  # prompt, start, end of each chunk
        self.embedded_between = False
        self._embedded: list[Prompt] = []  # with images, in order
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        kind, call = type(self.target), type(self.target).__call__

        def counted(network: Any, *args: Any, **kwargs: Any) -> Any:
            if network is self.target:  # not one of the same class that runs alone
                self.batches.append(args[0].shape[0])
                self.tokens += args[0].size
                self.plant()
            return call(network, *args, **kwargs)

        self._stack.enter_context(patch.object(kind, "__call__", counted))
        for name in ("embed", "prefill"):
            spy = getattr(self, f"_{name}")(getattr(self.model, name))
            self._stack.enter_context(patch.object(self.model, name, spy))
        run_pass = prefill_pass.run_pass

        def shared(model: Model, rows: Sequence[PassRow]) -> mx.array:
            lengths = [len(row.ids) for row in rows]
            self.tokens -= len(rows) * max(lengths) - sum(lengths)  # padding
            return run_pass(model, rows)

        self._stack.enter_context(patch.object(prefill_pass, "run_pass", shared))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def plant(self) -> None:
        """Overwrite what the model remembers of positions, where it remembers any."""
        if self.garbage:
            kept = [name for name in POSITION_STATE if hasattr(self.target, name)]
            if not kept:
                raise AttributeError(f"{type(self.target)} keeps no positions")
            for name in kept:
                setattr(self.target, name, mx.array(_GARBAGE[name]))

    def _embed(self, embed: Callable[..., Prompt]) -> Callable[..., Prompt]:
        def spy(prepared: Prepared, *where: Any) -> Prompt:
            prompt = embed(prepared, *where)
            self._embedded += [prompt] * prepared.has_media
            return prompt

        return spy

    def _prefill(self, prefill: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def spy(prompt: Prompt, start: int, end: int, state: Any) -> mx.array:
            self.pieces.append((prompt, start, end))
            if prompt.spans and self._embedded[-1] is not prompt:
                self.embedded_between = True
            return prefill(prompt, start, end, state)

        return spy

    def cuts(self, row: Row) -> list[list[int]]:
        """Where each prompt of a row was cut, in the order they were begun."""
        found: dict[int, list[int]] = {}
        for prompt, _, end in self.pieces:
            if prompt.ids == row.ids:
                found.setdefault(id(prompt), []).append(end)
        return list(found.values()) or [[]]

    @property
    def cut_an_image(self) -> bool:
        return any(low < end < high for prompt, _, end in self.pieces for low, high in prompt.spans)


_GARBAGE = {"_position_ids": np.full((3, 1, 400), 77), "_rope_deltas": np.full((1, 1), 1234)}


@dataclass
class Sent:
    row: Row
    handle: Handle
    reason: FinishReason
    count: int | None  # tokens that have to come; None: as many as there are


class Run:
    """Serves rows of a subject and compares what comes with their solo results."""

    def __init__(
        self,
        subject: Subject,
        chunk: int,
        *,
        in_turn: bool = False,
        at_once: bool = False,
        garbage: bool = False,
        reuse: bool = False,
        attention: Attention = "auto",
        drafts: bool = False,
    ):
        """drafts: rows guess what they say next, and some of that is wrong."""
        self.subject, self.drafts = subject, drafts
        with ExitStack() as shared:
            if not subject.double:
                shared.enter_context(patch("bushel.engine.build.load", loaded))
                shared.enter_context(patch("bushel.engine.footprint.footprint", measured))
            self.llm = LLM(
                subject.path,
                prefill_chunk=chunk,
                prefix_cache=reuse,
                attention=attention,
                speculate="off",
            )
        self.sent: list[Sent] = []
        self.faults: list[str] = []
        self.watch = Watch(self.llm, garbage=garbage)
        engine = self.llm._engine
        assert engine is not None
        if drafts:
            known = {row.ids: row.tokens for row in subject.rows}
            engine.speculation = oracle(known, VOCAB)
            engine._rows.reset(engine._new_batch())
        if subject.double:
            self.watch.model.network.set_dtype(mx.float64)
        if in_turn:
            # Every prompt is overdue at once, so that they are prefilled a chunk each in turn.
            engine.policy = dataclasses.replace(engine.policy, start_wait=0.0)
        if at_once:
            # However long they take, so that short replies are not over before all have joined.
            engine.policy = dataclasses.replace(engine.policy, token_gap=1e6)

    def __enter__(self) -> Self:
        self.watch.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.__exit__()
        self.llm.close()

    def submit(
        self, at: int, *, reason: FinishReason = "length", count: int | None = -1, **said: Any
    ) -> Handle:
        """Send row `at`; `reason` and `count` are how its reply has to end, -1 being all of it."""
        row = self.subject.rows[at]
        count = self.subject.tokens if count == -1 else count
        params = {"max_tokens": self.subject.tokens, **said}
        self.watch.plant()
        handle = self.llm.submit(
            row.request,
            SamplingParams(temperature=0, ignore_eos=True, logprobs=VOCAB, **params),
        )
        self.sent.append(Sent(row, handle, reason, count))
        return handle

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.watch.plant()
            self.llm.step()

    def until(self, done: Callable[[], bool]) -> None:
        while not done() and not all(sent.handle.done for sent in self.sent):
            self.step()

    def finish(self) -> Result:
        self.until(lambda: False)
        self.require(not self.llm.status()["requests"], "requests are left behind")
        found = [
            self._compare(sent, choice)
            for sent in self.sent
            for choice in sent.handle.output.choices
        ]
        if self.drafts:
            every = [sent.handle.output.usage for sent in self.sent]
            drafted = sum(usage.drafted_tokens for usage in every)
            accepted = sum(usage.accepted_tokens for usage in every)
            self.require(0 < accepted < drafted, f"{accepted} of {drafted} drafts held")
        status = self.llm.status()
        lane = "single" if self.subject.single else "batch"
        self.require(status["lane"] == lane, f"lane {status['lane']}: {status['lane_reason']}")
        return Result(
            float(np.max(found)),
            tuple(self.faults),
            max(self.watch.batches),
            status["lane_reason"],
            WIDER.get(self.subject.name, BOUND),
        )

    def require(self, ok: bool, what: str) -> None:
        if not ok:
            self.faults.append(what)

    def _compare(self, sent: Sent, choice: Choice) -> float:
        name = f"{self.subject.name} row {self.subject.rows.index(sent.row)}"
        if choice.error is not None or choice.finish_reason != sent.reason:
            self.faults.append(f"{name} ended by {choice.finish_reason} ({choice.error})")
        tokens, count = choice.token_ids, len(choice.token_ids)
        if sent.count not in (None, count):
            self.faults.append(f"{name} has {count} tokens, not {sent.count}")
        tokens_alone, logprobs_alone = self._alone(sent)
        solo = tokens_alone[:count]
        same = next((n for n in range(count) if tokens[n] != solo[n]), count)
        if same < count:
            self.faults.append(f"{name} token {same} is {tokens[same]}, not {solo[same]}")
        # The first differing token was still chosen after the same ones.
        comparable = min(same + 1, count)
        if not comparable:
            return 0.0
        found = np.full((comparable, VOCAB), np.nan)
        for at, entry in enumerate((choice.logprobs or [])[:comparable]):
            ids, values = zip(*entry.top, strict=True)
            found[at, list(ids)] = values
        return float(np.abs(found - logprobs_alone[:comparable]).max())

    def _alone(self, sent: Sent) -> tuple[list[int], np.ndarray]:
        """The solo result, of the same pieces where it depends on them."""
        if sent.row.cut_at is None:
            return sent.row.tokens, sent.row.logprobs
        again = [it for it in self.sent if it.row is sent.row].index(sent)
        solo = sent.row.cut_at(cuts=self.watch.cuts(sent.row)[again])
        return solo.tokens, solo.logprobs
