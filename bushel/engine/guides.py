"""The guides of an engine's rows, from a request's grammar to a batch's masks."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable

from bushel.engine.decode import DecodeBatch
from bushel.engine.grammar import Grammars
from bushel.engine.guide import Guided, Masker, Masks
from bushel.engine.prefill import Prefill
from bushel.engine.sequence import Sequence
from bushel.models import Model


class Guides:
    """Owned by one engine, and used by its thread alone."""

    def __init__(self, model: Model):
        self._decode = model.tokenizer.decode
        self._grammars = Grammars(model.tokenizer, model.vocab)
        self._masker = Masker(model.vocab, len(model.tokenizer.hf), model.tokenizer.end_ids)

    def warm(self) -> None:
        self._grammars.warm()

    def begin(self, job: Prefill) -> None:
        """Give its rows their guides, at once or when their grammar has been compiled."""
        guide = job.sequences[0].decoding.guide
        if guide is None:
            return
        if guide.grammar is not None:
            job.compiling = self._grammars.begin(guide.grammar, len(job.sequences))
            return
        for sequence in job.sequences:
            sequence.guided = Guided(sequence.decoding, self._decode, None)

    def complete(self, job: Prefill) -> bool:
        """Take in what was compiled for it; false if it has to wait. Raises what compiling did."""
        compiling = job.compiling
        if compiling is None:
            return True
        if not compiling.done():
            return False
        job.compiling = None
        for sequence, matcher in zip(job.sequences, compiling.result(), strict=True):
            sequence.guided = Guided(sequence.decoding, self._decode, matcher)
        return True

    def wait(self, jobs: Iterable[Prefill], seconds: float) -> bool:
        """Until one of them has been compiled; false if none is being."""
        compiling = [job.compiling for job in jobs if job.compiling is not None]
        if compiling:
            first = concurrent.futures.FIRST_COMPLETED
            concurrent.futures.wait(compiling, seconds, return_when=first)
        return bool(compiling)

    def masks(self, batch: DecodeBatch) -> tuple[Masks | None, list[tuple[Sequence, Exception]]]:
        """What its rows may say next, when all they have said is known; and whose guide fails."""
        guides = batch.guides
        for row, sequence in enumerate(batch.sequences if guides else ()):
            if sequence.done:
                guides[row] = None
        masks, failed = self._masker.make(guides)
        return masks, [(batch.sequences[row], error) for row, error in failed]

    def close(self) -> None:
        self._grammars.close()
