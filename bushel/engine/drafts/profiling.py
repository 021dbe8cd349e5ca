"""Measures what passes cost on this machine, once, at load.

With what the host does for each row, as they are served: between rounds of drafts the device waits
for that, between plain steps hardly ever. And tokens differ: each asks its own experts, and a pass
reads the weights of all that are asked.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from itertools import accumulate, islice

import mlx.core as mx

from bushel.cache import kind_of, take_snapshot
from bushel.cache.paged.attention import PARTITION
from bushel.core import GenerationDefaults, Prepared, Request, SamplingParams
from bushel.core.params import resolve
from bushel.engine.decode_batch import LATE, DecodeBatch, Step
from bushel.engine.drafts.batch_drafts import BatchDrafts
from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile, Drafting, straight
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.row_state import new_row
from bushel.engine.sequence import Sequence
from bushel.models import Model, Prompt
from bushel.models.device import ON_CPU, raise_device_fault
from bushel.models.mtp import HeadKVCache, MTPHead

_ROWS = (1, 4, 8, 16, 32)
_WIDTHS = (1, 2, 4, 8)  # Metal's attention for few queries ends at 8
_SEVERAL = (1, 8, 32)  # rows for which drafters are measured
_CONTEXT = 64  # tokens before those that are measured
_LONG_CONTEXT = (
    8192  # tokens, at most, that passes attend to as what a long context costs is measured
)
_LONG_CONTEXT_BYTES = 1 << 26  # and as many as their keys and values may take; or more,
_LONG_CONTEXT_SHARE = 1 / 16  # where that is a small part of what the weights take
_STEPS = 2  # of a turn that are plain
_TURNS = 8  # at most, of each number of rows
_HEAD_TURNS = 5  # of a head, for each number of rows
_SECONDS_EACH = 0.25  # after which a number of rows has no more turns
_MOST_SECONDS = 3.0  # after which no more rows are measured: larger batches then draft nothing
_ENDLESS = 1 << 30  # tokens of a reply
_ANY = CostProfile(((1.0,),))  # nobody asks whether drafts pay

log = logging.getLogger(__name__)

Clock = Callable[[], float]


def measure(model: Model, most_rows: int, clock: Clock = time.perf_counter) -> CostProfile:
    """Of steps and rounds of a decode batch of its own, which is gone when this returns.

    In turns, and the shortest of each: whatever else the machine does makes passes longer, and
    never shorter.
    """
    measured: dict[tuple[int, int], float] = {}
    long_context, longer = dict[int, float](), 0
    if not ON_CPU:
        _compile(model)
    spent = 0.0
    for count in [rows for rows in _ROWS if rows <= most_rows]:
        if spent > _MOST_SECONDS:
            break
        tokens = _any_tokens(model.vocab)
        batch = _filled(model, count, tokens)
        widths = [width for width in _WIDTHS if count * (width - 1) <= MOST_DRAFTS]
        if count == 1 or not ON_CPU:
            _turn(batch, widths, tokens, clock)  # may wait for what is compiled
        began = clock()
        for width, seconds in _shortest(batch, widths, tokens, clock).items():
            measured[count, width] = seconds
        spent += clock() - began
        if count == 1 and spent <= _MOST_SECONDS:
            longer = _context_to_measure(model)
            long_context = _measure_long_context(batch, longer, widths, tokens, clock)
    profile = CostProfile.fitted(measured, most_rows)
    return profile.with_long_context(long_context, longer) if long_context else profile


def _measure_long_context(
    batch: DecodeBatch, longer: int, widths: Items[int], tokens: Iterator[int], clock: Clock
) -> dict[int, float]:
    """What passes take when the context is so many tokens longer; nothing where that fails."""
    try:
        _advance_without_running(batch, longer)
        _plain_step(batch, clock)  # makes room
        return _shortest(batch, widths, tokens, clock)
    except Exception as error:  # too little memory
        raise_device_fault(error)
        log.warning("what drafts cost after %d tokens could not be measured: %s", longer, error)
        return {}


def _context_to_measure(model: Model) -> int:
    """Tokens whose keys and values take a while to read, and do not fill the memory."""
    state = new_row(model)
    mx.eval(model.forward(mx.zeros((1, 1), mx.uint32), [0], state))
    sizes = (size for layer in state for size in kind_of(layer).size(layer, 1))
    each = sum(size.per_token for size in sizes if size.window is None)
    many = max(_LONG_CONTEXT_BYTES, int(_LONG_CONTEXT_SHARE * model.weights[0])) // max(1, each)
    return min(_LONG_CONTEXT, many, (model.context or _ENDLESS) // 2)


def _advance_without_running(batch: DecodeBatch, tokens: int) -> None:
    """Rows go on as if they had run so many more. Their keys and values are anything: that costs
    the same, and nobody reads what these rows say.
    """
    batch.rows.reserve(tokens)
    batch.rows.advance([tokens] * len(batch))


def _shortest(
    batch: DecodeBatch, widths: Items[int], tokens: Iterator[int], clock: Clock
) -> dict[int, float]:
    """Seconds of a pass of each of these widths, in the turn in which it took the least."""
    least: dict[int, float] = {}
    began = clock()
    for turn in range(_TURNS):
        if turn and clock() - began > _SECONDS_EACH:
            break
        for width, seconds in _turn(batch, widths, tokens, clock).items():
            least[width] = min(seconds, least.get(width, seconds))
    return least


def _turn(
    batch: DecodeBatch, widths: Items[int], tokens: Iterator[int], clock: Clock
) -> dict[int, float]:
    """Seconds of a pass of each of these widths."""
    return {
        width: _round(batch, width, tokens, clock) if width > 1 else _plain_step(batch, clock)
        for width in widths
    }


def _compile(model: Model) -> None:
    """Run every width once, in a short row and in one of several partitions: an accelerator
    compiles kernels for each, and no reply is to wait for that.
    """
    for context in (_CONTEXT, _CONTEXT + PARTITION):
        tokens = _any_tokens(model.vocab)
        batch = _filled(model, 1, tokens, context)
        for width in range(1, _WIDTHS[-1] + 1):
            _round(batch, width, tokens, time.perf_counter)


def _any_tokens(vocab: int) -> Iterator[int]:
    """The same each time."""
    chance = random.Random(0)
    while True:
        yield chance.randrange(vocab)


def _filled(
    model: Model, count: int, tokens: Iterator[int], context: int = _CONTEXT
) -> DecodeBatch:
    """So many rows of some tokens each, in which nobody drafts by himself."""
    state, shared = new_row(model), tuple(islice(tokens, context))
    mx.eval(model.forward(mx.array([shared], mx.uint32), [0], state))
    snapshot = take_snapshot(state, context)
    params = SamplingParams(max_tokens=_ENDLESS, temperature=0, ignore_eos=True)
    decoding = resolve(params, GenerationDefaults(), vocab=model.vocab, end_ids=frozenset())
    # The last is run first.
    prompts = [Prepared((*shared, token)) for token in islice(tokens, count)]
    rows = [Request(f"row {at}", prompt, (decoding,)) for at, prompt in enumerate(prompts)]
    batch = DecodeBatch(model, BatchDrafts((), _ANY))
    batch.join(
        [
            PrefilledRow(
                Sequence.start(row, 0, model.tokenizer.decode, None),
                Prompt(row.prompt.ids),
                context,
                None,
                snapshot,
            )
            for row in rows
        ]
    )
    return batch


def _plain_step(batch: DecodeBatch, clock: Clock) -> float:
    """Each is started before the one before it has been read, as `row_runner` does."""
    start, before = 0.0, None
    for step in range(2 + _STEPS):
        if step == 2:
            start = clock()
        run = batch.forward()
        if LATE:
            run.begin()
            run.go_on()
        launched = batch.choose(run, late=LATE)
        if before is not None:
            _say(before)
        before = launched
    seconds = (clock() - start) / _STEPS
    assert before is not None
    _say(before)
    return seconds


def _say(step: Step) -> None:
    for sequence, tokens, logprobs in step.read():
        sequence.add(tokens, logprobs)


def _round(batch: DecodeBatch, width: int, tokens: Iterator[int], clock: Clock) -> float:
    """Half of the drafts are accepted: to roll back the others is part of the cost."""
    drafts = [[*islice(tokens, width - 1)] for _ in batch.sequences]
    start = clock()
    round = batch.choose_along(batch.verify(drafts))
    accepted = width // 2
    for sequence, draft, *_ in round.read():
        sequence.add((*draft[:accepted], next(tokens)), drafted=len(draft))
    batch.finish(round.verify, [1 + accepted] * len(batch))
    mx.eval(batch.rows.settle())
    return clock() - start


def of_head(head: MTPHead, most_rows: int, clock: Clock = time.perf_counter) -> Drafting:
    """Seconds that a prediction head takes for one more token of every row's draft."""
    norm = head.block.norm.weight

    def one(count: int) -> float:
        cache, shortest = HeadKVCache(count), math.inf
        shape, tokens = (count, 1, norm.size), mx.zeros((count, 1), mx.uint32)
        hidden = mx.random.normal(shape, key=mx.random.key(0)).astype(norm.dtype)
        for _ in range(_HEAD_TURNS):
            start = clock()
            logits = head.logits(head(hidden, tokens, [_CONTEXT] * count, [0] * count, cache))
            tokens = mx.argmax(logits, axis=-1)
            tokens.tolist()
            shortest = min(shortest, clock() - start)
        return shortest

    return _by_rows(one, most_rows)


def of_draft_model(draft: Model, most_rows: int, clock: Clock = time.perf_counter) -> Drafting:
    """Seconds that a draft model takes for one more token of every row's draft."""

    def one(count: int) -> float:
        batch = _filled(draft, count, _any_tokens(draft.vocab))
        return min(_plain_step(batch, clock) for _ in range(_TURNS))

    return _by_rows(one, most_rows)


def _by_rows(one: Callable[[int], float], most_rows: int) -> Drafting:
    """Of one row and of several; straight in between, and beyond."""
    several = {rows: one(rows) for rows in sorted({min(rows, most_rows) for rows in _SEVERAL})}
    return tuple(accumulate(straight(several, most_rows), max))
