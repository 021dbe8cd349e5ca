"""Rounds of drafts: propose, verify in one pass, choose along it, and keep what is accepted.

    engine's thread  | propose, cut by grammars | start the pass, masks along the drafts, choose
    device             drafts                   | the pass ........................ | choose
    engine's thread    prompts | read | add what each row says | go back to what each row keeps

A round begins and ends within one step of the engine. What a row says is what was chosen in its
places, whatever was guessed: a draft decides how many tokens come at once, never which.
"""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from bushel.core import TokenLogprob
from bushel.engine.constraints.mask_thread import MaskThread
from bushel.engine.decode_batch import DecodeBatch, Round
from bushel.engine.drafts.drafter import counts_of, read_drafts
from bushel.engine.sequence import Sequence

# Takes what a row says, with how many tokens its draft had; tells how many it took.
Add = Callable[[Sequence, tuple[int, ...], tuple[TokenLogprob, ...], int], int]
Fail = Callable[[Sequence, Exception], None]


def begin(batch: DecodeBatch, masks: MaskThread, fail: Fail) -> Round | None:
    """Start one for a batch all of whose tokens have been read; None if nobody has a draft."""
    # A row that has run no token yet has nothing to go back to.
    if batch.drafts is None or not len(batch) or not all(batch.rows.positions):
        return None
    drafts = batch.drafts.propose(batch.rows.context_tokens)
    constraints = batch.constraints_along if any(counts_of(drafts)) else []
    if constraints:
        drafts = masks.cut(constraints, read_drafts(drafts))
    if not any(counts_of(drafts)):
        return None
    verify = batch.verify(drafts)
    made = None
    if constraints:
        mx.async_eval(verify.logits)  # it runs while masks are made
        made, drafts, failed = masks.along(constraints, read_drafts(drafts))
        verify = verify._replace(drafts=drafts)
        for row, error in failed:
            fail(batch.sequences[row], error)
    return batch.choose_along(verify, made)


def finish(batch: DecodeBatch, round: Round, add: Add) -> None:
    """Read it, and go on from what each row keeps."""
    kept = []
    for sequence, draft, tokens, logprobs in round.read():
        # A row that has ended takes nothing, and leaves before another step.
        taken = 0 if sequence.done else add(sequence, tokens, logprobs, len(draft))
        kept.append(max(1, taken))
    batch.finish(round.verify, kept)
