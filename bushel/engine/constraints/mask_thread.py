"""The constraints of an engine's rows, from a request's grammar to a batch's masks.

    device           | step t .... | forward pass of step t+1 .. | choose
    engine's thread  | build, start() | encode the forward pass  | masks, choose
    mask thread                    | read step t, follow, masks |

Where the host is what limits a model's speed, as it is for small ones on a fast GPU, masks take
none of its time: MLX lets go of the interpreter while it encodes.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from collections.abc import Sequence as Items
from queue import SimpleQueue
from threading import Thread

from bushel.engine.constraints import masker
from bushel.engine.constraints.constraint import ConstrainedRow
from bushel.engine.constraints.masker import Masker
from bushel.engine.decode_batch import DecodeBatch, Run, Step
from bushel.engine.prefill import Prefill
from bushel.engine.sampling.chooser import Masks
from bushel.engine.sequence import Sequence
from bushel.models import Model
from bushel.text.grammar_compiler import Grammars

Failures = list[tuple[Sequence, Exception]]
_Rows = list[tuple[Sequence, ConstrainedRow | None]]


class MaskThread:
    """Owned by one engine, whose thread alone calls it.

    Between `start` and `wait_for_masks` the rows' constraints are the other thread's.
    """

    def __init__(self, model: Model):
        self._decode = model.tokenizer.decode
        self._grammars = Grammars(model.host.profile)
        self._masker = Masker(model.vocab, len(model.tokenizer.hf), model.tokenizer.end_ids)
        # Bare queues take the engine 6 us a step, an executor's submit and result 32.
        self._asked = SimpleQueue[tuple[_Rows, Step | None] | None]()
        self._made = SimpleQueue[tuple[Masks | None, Failures] | BaseException]()
        self._thread: Thread | None = None

    def warm(self) -> None:
        self._grammars.warm()

    def begin(self, job: Prefill) -> None:
        """Give its rows their constraints, at once or when their grammar has been compiled."""
        constraint = job.sequences[0].decoding.constraint
        if constraint is None:
            return
        if constraint.grammar is not None:
            job.compiling = self._grammars.begin(constraint.grammar, len(job.sequences))
            return
        for sequence in job.sequences:
            sequence.constrained = ConstrainedRow(sequence.decoding, self._decode, None)

    def take_compiled(self, job: Prefill) -> None:
        """Take in what was compiled for it; raises what compiling did, and then it still waits."""
        assert job.compiling is not None
        for sequence, matcher in zip(job.sequences, job.compiling.result(), strict=True):
            sequence.constrained = ConstrainedRow(sequence.decoding, self._decode, matcher)
        job.compiling = None

    def wait(self, jobs: Iterable[Prefill], seconds: float) -> bool:
        """Until one of them has been compiled; false if none is being."""
        compiling = [job.compiling for job in jobs if job.compiling is not None]
        if compiling:
            first = concurrent.futures.FIRST_COMPLETED
            concurrent.futures.wait(compiling, seconds, return_when=first)
        return bool(compiling)

    def make(
        self, batch: DecodeBatch, run: Run, before: Step | None
    ) -> tuple[Masks | None, Failures]:
        """What a batch's rows may say next, worked out while the model runs; and whose fail."""
        run.begin()  # before another thread reads what led to it
        self.start(batch, before)
        try:
            run.go_on()
        finally:
            made = self.wait_for_masks()
        return made

    def cut(
        self, constraints: Items[ConstrainedRow | None], drafts: Items[Items[int]]
    ) -> list[list[int]]:
        """Of every row's draft as much as it may say; all that it said has been read."""
        return self._masker.cut(constraints, drafts)

    def along(
        self, constraints: Items[ConstrainedRow | None], drafts: Items[Items[int]]
    ) -> tuple[Masks | None, list[list[int]], masker.Failures]:
        """Masks at every place of these drafts, what of them may be kept, and which rows fail."""
        return self._masker.along(constraints, drafts)

    def start(self, batch: DecodeBatch, before: Step | None) -> None:
        """Begin with masks for a batch's next step; before: its last one, if not yet read."""
        if self._thread is None:
            self._thread = Thread(target=self._make_all, name="masks", daemon=True)
            self._thread.start()
        self._asked.put((list(zip(batch.sequences, batch.constraints, strict=True)), before))

    def wait_for_masks(self) -> tuple[Masks | None, Failures]:
        """What was started, when it is there."""
        made = self._made.get()
        if isinstance(made, BaseException):
            raise made
        return made

    def _make_all(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                self._made.put(self._make(*asked))
            except BaseException as error:  # the engine's to handle
                self._made.put(error)

    def _make(self, rows: _Rows, before: Step | None) -> tuple[Masks | None, Failures]:
        newest = {} if before is None else before.tokens_for_masks()
        going_on: list[ConstrainedRow | None] = []
        failed = Failures()
        for sequence, constrained in rows:
            try:
                going_on.append(_goes_on(constrained, newest.get(sequence, ())))
            except Exception as error:  # a matcher's fault is its row's
                going_on.append(None)
                failed.append((sequence, error))
        masks, more = self._masker.make(going_on)
        return masks, failed + [(rows[row][0], error) for row, error in more]

    def close(self) -> None:
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
        self._masker.close()
        self._grammars.close()


def _goes_on(constrained: ConstrainedRow | None, tokens: tuple[int, ...]) -> ConstrainedRow | None:
    """The constraint after what its row said, if anything; None if that ended the reply."""
    if constrained is None:
        return None
    for token in tokens:
        if token in constrained.decoding.end_ids:
            return None
        constrained.take(token)
    return constrained
