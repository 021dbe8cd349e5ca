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
from typing import NamedTuple, TypeVar

import mlx.core as mx

from bushel.cache import kind_of, take_snapshot
from bushel.cache.paged.attention import PARTITION
from bushel.cache.paged.page_pool import PagePool
from bushel.core import GenerationDefaults, Prepared, Request, SamplingParams
from bushel.core.params import resolve
from bushel.engine.decode_batch import LATE, DecodeBatch, Step
from bushel.engine.drafts.batch_drafts import BatchDrafts
from bushel.engine.drafts.cost_profile import MOST_DRAFTS, CostProfile, Drafting, straight
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.row_state import new_row, ran_a_token
from bushel.engine.sequence import Sequence
from bushel.models import Model, Prompt
from bushel.models.device import ON_CPU, device_fault, settle
from bushel.models.latent_attention import expanded_token
from bushel.models.mtp import HeadKVCache, MTPHead

_ROWS = (1, 4, 8, 16, 32)
_WIDTHS = (1, 2, 4, 8)  # Metal's attention for few queries ends at 8
_SEVERAL = (1, 8, 32)  # rows for which drafters are measured
_CONTEXT = 64  # tokens before those that are measured
_LONG_CONTEXT = 8192  # tokens of a row, at most, as what a long context costs is measured
_LONG_CONTEXT_BYTES = 1 << 26  # and as many as their keys and values may take; or more,
_LONG_CONTEXT_SHARE = 1 / 16  # where that is a small part of what the weights take
_LONG_CONTEXT_ROOM = 1 / 4  # and never more than this part of what the weights leave free
_COPIES = 4  # of a layer's keys and values, while they grow
_LEAST_LONG_CONTEXT = 1024  # tokens; what fewer cost is lost among what else a machine does
_LONG_TURNS = 3  # at least, after one that makes room
_LONG_SECONDS = 0.8  # of all turns of a long context: a slow machine's is shorter
_MOST_LONG_SECONDS = 1.5  # it is not measured where as many turns of a short one take longer
_STEPS = 2  # of a turn that are plain
_TURNS = 8  # at most, of each number of rows
_HEAD_TURNS = 5  # of a head, for each number of rows
_SECONDS_EACH = 0.25  # after which a number of rows has no more turns
_MOST_SECONDS = 3.0  # after which no more rows are measured: larger batches then draft nothing
_ENDLESS = 1 << 30  # tokens of a reply
_ANY = CostProfile(((1.0,),))  # nobody asks whether drafts pay

log = logging.getLogger(__name__)

Clock = Callable[[], float]
Found = TypeVar("Found")


class _LongContext(NamedTuple):
    """Seconds by width that passes of one row take more, with a context so many tokens longer."""

    more: dict[int, float]
    tokens: int


def measure(
    model: Model, most_rows: int, clock: Clock = time.perf_counter, free: int | None = None
) -> CostProfile:
    """Of steps and rounds of a decode batch of its own, which is gone when this returns.

    In turns, and the shortest of each: whatever else the machine does makes passes longer, and
    never shorter. free: bytes that the weights leave; None: any number.
    """
    measured: dict[tuple[int, int], float] = {}
    far = None
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
        [least] = _shortest([batch], widths, tokens, clock)
        for width, seconds in least.items():
            measured[count, width] = seconds
        spent += clock() - began
        if count == 1 and spent <= _MOST_SECONDS:
            far = _measure_long_context(model, batch, least, tokens, clock, free)
    profile = CostProfile.fitted(measured, most_rows)
    return profile if far is None else profile.with_long_context(*far)


def _measure_long_context(
    model: Model,
    near: DecodeBatch,
    short: dict[int, float],
    tokens: Iterator[int],
    clock: Clock,
    free: int | None,
) -> _LongContext | None:
    """In turns with a batch of one row that is near its beginning, and leaves: hosts and devices
    change their speed, and what that is must not be put down to the context. short: what its passes
    have taken.

    None where that fails, or where memory, time or the model's context end too early.
    """
    most, pool, widths = context_to_measure(model, free), model.pages, [*short]
    turn = (2 + _STEPS) * short[1] + sum(short[width] for width in short if width > 1)
    if most < _LEAST_LONG_CONTEXT or (1 + _LONG_TURNS) * turn > _MOST_LONG_SECONDS:
        return None
    pages = 0 if pool is None else pool.capacity

    def seconds(batch: DecodeBatch) -> float:
        began = clock()
        _turn(batch, widths, tokens, clock)
        return clock() - began

    def long() -> _LongContext:
        began, far = clock(), _filled(model, 1, tokens)
        _advance_without_running(far, _LEAST_LONG_CONTEXT)
        seconds(far)  # makes room
        turn = seconds(near)
        each = max(0.0, seconds(far) - turn) / _LEAST_LONG_CONTEXT
        left = (_LONG_SECONDS - (clock() - began)) / (1 + _LONG_TURNS) - 2 * turn
        fits = min(most, int(left / each)) if each else most
        if fits > _LEAST_LONG_CONTEXT:
            _advance_without_running(far, fits - _LEAST_LONG_CONTEXT)
            seconds(far)
        taken = _shortest([near, far], widths, tokens, clock, _LONG_TURNS)
        (start,), (end,) = near.rows.positions, far.rows.positions
        for batch in (near, far):
            batch.leave(batch.sequences)
        if pool is not None:
            pool.resize(pages)
        more = {width: taken[1][width] - taken[0][width] for width in widths}
        return _LongContext(more, end - start)

    found = try_long_context(model, long)
    if found is None:
        renew_pages(model)
    return found


def try_long_context(model: Model, long: Callable[[], Found]) -> Found | None:
    """None if it fails. So it may even if the device does, later than it was asked: nothing else
    runs, and nothing of what it computed is kept.
    """
    mx.synchronize()  # what failed before is not its fault
    try:
        return long()
    except Exception as error:  # too little memory
        if device_fault(error) is not None:
            settle()
            model.distrust()
        log.warning("what drafts cost in a long context could not be measured: %s", error)
        return None


def renew_pages(model: Model) -> None:
    """What was written to pages may have failed, and later writes with it. No row is there."""
    if model.pages is not None:
        model.pages = PagePool(len(model.pages.layers))


def context_to_measure(model: Model, free: int | None = None) -> int:
    """Tokens whose keys and values take a while to read, and do not fill the memory; 0: too few.

    free: bytes that the weights leave; None: any number.
    """
    context = (model.context or _ENDLESS) // 2
    if context < _LEAST_LONG_CONTEXT:
        return 0
    layers = (kind_of(layer).size(layer, 1) for layer in ran_a_token(model))
    sizes = [size.per_token for layer in layers for size in layer if size.window is None]
    each = max(1, sum(sizes))
    most = max(_LONG_CONTEXT_BYTES, int(_LONG_CONTEXT_SHARE * model.weights[0])) // each
    if free is not None:
        grown = each + _COPIES * max(sizes, default=0) + expanded_token(model.network)
        most = min(most, max(0, int(_LONG_CONTEXT_ROOM * free)) // grown)
    most = min(_LONG_CONTEXT, most, context)
    return most if most >= _LEAST_LONG_CONTEXT else 0


def _advance_without_running(batch: DecodeBatch, tokens: int) -> None:
    """Rows go on as if they had run so many more. Their keys and values are anything: that costs
    the same, and nobody reads what these rows say.
    """
    batch.rows.reserve(tokens)
    batch.rows.advance([tokens] * len(batch))


def _shortest(
    batches: Items[DecodeBatch],
    widths: Items[int],
    tokens: Iterator[int],
    clock: Clock,
    turns: int = 1,
) -> list[dict[int, float]]:
    """By batch, seconds of a pass of each of these widths, in the turn in which it took the least;
    turns: of each, at least.
    """
    least: list[dict[int, float]] = [{} for _ in batches]
    began = clock()
    for turn in range(_TURNS):
        if turn >= turns and clock() - began > _SECONDS_EACH * len(batches):
            break
        for batch, shortest in zip(batches, least, strict=True):
            for width, seconds in _turn(batch, widths, tokens, clock).items():
                shortest[width] = min(seconds, shortest.get(width, seconds))
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
    return _by_rows(lambda count: _head_token(head, count, 0, clock), most_rows)


def _head_token(head: MTPHead, count: int, slots: int, clock: Clock) -> float:
    """Seconds of it for so many rows, each of which has so many tokens before it."""
    norm = head.block.norm.weight
    cache, shortest = HeadKVCache(count), math.inf
    shape, tokens = (count, 1, norm.size), mx.zeros((count, 1), mx.uint32)
    hidden = mx.random.normal(shape, key=mx.random.key(0)).astype(norm.dtype)
    for _ in range(_HEAD_TURNS):
        start = clock()
        places = [_CONTEXT + slots] * count, [slots] * count
        logits = head.logits(head(hidden, tokens, *places, cache))
        tokens = mx.argmax(logits, axis=-1)
        tokens.tolist()
        shortest = min(shortest, clock() - start)
    return shortest


def of_head_per_context_token(
    model: Model, short: float, free: int | None = None, clock: Clock = time.perf_counter
) -> float:
    """Seconds that each token of context adds to a token of a head's draft, which took so long."""
    head, longer = model.mtp, context_to_measure(model, free)
    if head is None or not longer:
        return 0.0

    def more() -> float:
        """In turns, as hosts change their speed."""
        near, far = short, math.inf
        for _ in range(2):
            far = min(far, _head_token(head, 1, longer, clock))
            near = min(near, _head_token(head, 1, 0, clock))
        return far - near

    return max(0.0, try_long_context(model, more) or 0.0) / longer


def of_draft_model(draft: Model, most_rows: int, clock: Clock = time.perf_counter) -> Drafting:
    """Seconds that a draft model takes for one more token of every row's draft."""

    def one(count: int) -> float:
        batch = _filled(draft, count, _any_tokens(draft.vocab))
        return min(_plain_step(batch, clock) for _ in range(_TURNS))

    return _by_rows(one, most_rows)


def of_draft_model_per_context_token(
    draft: Model, short: float, free: int | None = None, clock: Clock = time.perf_counter
) -> float:
    """Seconds that each token of context adds to a token of its draft, which took so long."""
    tokens = _any_tokens(draft.vocab)
    batch = _filled(draft, 1, tokens)
    far = _measure_long_context(draft, batch, {1: short}, tokens, clock, free)
    return 0.0 if far is None else max(0.0, far.more[1]) / far.tokens


def _by_rows(one: Callable[[int], float], most_rows: int) -> Drafting:
    """Of one row and of several; straight in between, and beyond."""
    several = {rows: one(rows) for rows in sorted({min(rows, most_rows) for rows in _SEVERAL})}
    return tuple(accumulate(straight(several, most_rows), max))
