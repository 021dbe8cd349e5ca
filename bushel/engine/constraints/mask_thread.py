"""The guides of an engine's rows, from a request's grammar to a batch's masks.

    device           | step t .... | forward pass of step t+1 .. | choose
    engine's thread  | build, start() | encode the forward pass  | masks(), choose
    guides' thread                 | read step t, follow, masks |

Where the host is what limits a model's speed, as it is for small ones on a fast GPU, masks take
none of its time: MLX lets go of the interpreter while it encodes.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from queue import SimpleQueue
from threading import Thread

from bushel.engine.constraints.constraint import ConstrainedRow, Masker
from bushel.engine.decode_batch import DecodeBatch, Step
from bushel.engine.prefill import Prefill
from bushel.engine.sampling.chooser import Masks
from bushel.engine.sequence import Sequence
from bushel.models import Model
from bushel.text.grammar_compiler import Grammars

Failures = list[tuple[Sequence, Exception]]
_Rows = list[tuple[Sequence, ConstrainedRow | None]]


class MaskThread:
    """Owned by one engine, whose thread alone calls it.

    Between `start` and `masks` the rows' guides are the other thread's.
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
        """Give its rows their guides, at once or when their grammar has been compiled."""
        constraint = job.sequences[0].decoding.constraint
        if constraint is None:
            return
        if constraint.grammar is not None:
            job.compiling = self._grammars.begin(constraint.grammar, len(job.sequences))
            return
        for sequence in job.sequences:
            sequence.guided = ConstrainedRow(sequence.decoding, self._decode, None)

    def complete(self, job: Prefill) -> bool:
        """Take in what was compiled for it; false if it has to wait. Raises what compiling did."""
        compiling = job.compiling
        if compiling is None:
            return True
        if not compiling.done():
            return False
        job.compiling = None
        for sequence, matcher in zip(job.sequences, compiling.result(), strict=True):
            sequence.guided = ConstrainedRow(sequence.decoding, self._decode, matcher)
        return True

    def wait(self, jobs: Iterable[Prefill], seconds: float) -> bool:
        """Until one of them has been compiled; false if none is being."""
        compiling = [job.compiling for job in jobs if job.compiling is not None]
        if compiling:
            first = concurrent.futures.FIRST_COMPLETED
            concurrent.futures.wait(compiling, seconds, return_when=first)
        return bool(compiling)

    def start(self, batch: DecodeBatch, before: Step | None) -> None:
        """Begin with masks for a batch's next step; before: its last one, if not yet read."""
        if self._thread is None:
            self._thread = Thread(target=self._make_all, name="guides", daemon=True)
            self._thread.start()
        self._asked.put((list(zip(batch.sequences, batch.guides, strict=True)), before))

    def masks(self) -> tuple[Masks | None, Failures]:
        """What was started, when it is there: what rows may say next, and whose guide fails."""
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
        said = {} if before is None else before.tokens_for_masks()
        going_on: list[ConstrainedRow | None] = []
        failed = Failures()
        for sequence, guided in rows:
            try:
                going_on.append(_goes_on(guided, said.get(sequence)))
            except Exception as error:  # a matcher's fault is its row's
                going_on.append(None)
                failed.append((sequence, error))
        masks, more = self._masker.make(going_on)
        return masks, failed + [(rows[row][0], error) for row, error in more]

    def close(self) -> None:
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
        self._grammars.close()


def _goes_on(guided: ConstrainedRow | None, token: int | None) -> ConstrainedRow | None:
    """The guide after what its row said, if anything; None if that ended the reply."""
    if guided is None or token is None:
        return guided
    if token in guided.decoding.end_ids:
        return None
    guided.take(token)
    return guided
