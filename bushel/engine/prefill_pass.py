"""Several short prompts in one forward pass, and any prompt in one of few lengths.

    row 0    a b c d e f g h     each from its own position on, over its own keys and values
    row 1    a b c . . . . .     what is beyond its end is seen by nobody before it
    row 2    a b c d e . . .

A short prompt costs little more than a pass through the weights, which many can share. And MLX's
CUDA build plans attention anew for each length that it has not seen, which takes as long as to run
2,000 tokens of an 8B model: prompts are padded there, and those that go on from somewhere run some
tokens again, so that they begin at a multiple, too (EVEN); what comes of that is run at load. Only
where all layers keep plain keys and values, or a recurrent state that is told where rows end, and
where it is known to work (`Model.shares_passes`). No token goes into a recurrent state twice: where
lengths are to be few, all layers have to be in pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import mlx.core as mx
import numpy as np

from bushel.cache.packed_rows import pack, unpack
from bushel.cache.paged.page_table import PageTable
from bushel.cache.paged.paged_kv import PagedKVCache, table_of
from bushel.core.footprint import Memory
from bushel.engine.prefill import Prefill
from bushel.engine.row_state import new_row
from bushel.models import Model, State
from bushel.models.device import ON_CUDA

EVEN = ON_CUDA  # whether prompts are padded to a length that others have, too
_STEP = 128  # tokens of which longer ones are a multiple; shorter ones are a power of two
_LEAST = 16
_BEGIN = 256  # tokens of which the place is a multiple where a prompt goes on
SHORT = 256  # tokens of prompts that share a pass: longer ones fill a device by themselves
# Tokens that a prompt may have run before: without pages they are put together for the pass.
_REACH = 256
Result = TypeVar("Result")
_PLANNED = 2048  # tokens of prompts whose pieces are run at load


class PassRow(NamedTuple):
    ids: Sequence[int]
    position: int  # of the first that is new
    state: State  # a lone row's
    again: int = 0  # tokens at the beginning that have run before: what they left stays as it is


def pass_row(model: Model, ids: Sequence[int], start: int, end: int, state: State) -> PassRow:
    """Tokens [start, end) of these, of which those before have run."""
    again = _again(model, start)
    return PassRow(ids[start - again : end], start, state, again)


def _again(model: Model, start: int) -> int:
    """Tokens before this one that are run once more."""
    return start % _BEGIN if _repeats(model) else 0


def _repeats(model: Model) -> bool:
    """Whether its prompts are made to begin at a multiple."""
    return EVEN and model.pages is not None and model.whole_in_pages


def run_pass(model: Model, rows: Sequence[PassRow]) -> mx.array:
    """Run tokens of several rows, each of which is further on by its own then; logits [B, n, V]."""
    return _run(model, rows, model.forward)


def run_pass_with_hidden(model: Model, rows: Sequence[PassRow]) -> list[mx.array]:
    """Likewise; of each row the hidden states [n, D] of its new tokens."""
    _, hidden = _run(model, rows, model.forward_with_hidden)
    # Each by itself: a view would keep those of all rows alive.
    return [mx.contiguous(hidden[at, row.again : len(row.ids)]) for at, row in enumerate(rows)]


def _run(
    model: Model,
    rows: Sequence[PassRow],
    forward: Callable[[mx.array, Sequence[int], State], Result],
) -> Result:
    width = max(_width(model, len(row.ids), row.position - row.again) for row in rows)
    tokens = np.zeros((len(rows), width), np.int32)
    for at, row in enumerate(rows):
        tokens[at, : len(row.ids)] = row.ids
    if model.pages is not None:
        return _run_over_pages(model, rows, tokens, forward)
    counts = [len(row.ids) for row in rows]
    columns = list(zip(*(row.state for row in rows), strict=True))
    layers = [pack(singles, counts) for singles in columns]
    result = forward(mx.array(tokens), [row.position for row in rows], layers)
    for layer, singles in zip(layers, columns, strict=True):
        unpack(layer, singles)
    return result


def _width(model: Model, tokens: int, begin: int) -> int:
    """Of a pass of so many tokens of a row from here on; one of several is as wide as the widest of
    them.
    """
    if not EVEN or model.pages is None:
        return tokens
    # Where a piece begins and how wide it is are planned together: few of both.
    return padded_width(max(tokens, _STEP) if begin and _repeats(model) else tokens)


def _run_over_pages(
    model: Model,
    rows: Sequence[PassRow],
    tokens: np.ndarray,
    forward: Callable[[mx.array, Sequence[int], State], Result],
) -> Result:
    table = PageTable(model.pages)
    for row in rows:
        own = table_of(row.state)
        assert own is not None
        table.join(own.rows[0])
    again = [row.again for row in rows]
    counts = [len(row.ids) - row.again for row in rows]
    columns = list(zip(*(row.state for row in rows), strict=True))
    layers: State = [
        PagedKVCache(singles[0].store, table, batch=True)
        if isinstance(singles[0], PagedKVCache)
        else pack(singles, counts)
        for singles in columns
    ]
    table.reserve_prompts([row.position for row in rows], counts, tokens.shape[1], again)
    try:
        starts = [row.position - row.again for row in rows]
        result = forward(mx.array(tokens), starts, layers)
    finally:
        table.end_prompts()
    for layer, singles in zip(layers, columns, strict=True):
        if not isinstance(layer, PagedKVCache):
            unpack(layer, singles)
            continue
        for single, position in zip(singles, table.after, strict=True):
            single.position = position
    return result


def plan_pieces(model: Model, memory: Memory | None, progress: Callable[[str], None]) -> None:
    """Run every piece that a prompt in pages may have, before anyone waits for one; of others, what
    shares a pass: those from the beginning.
    """
    if not EVEN or model.pages is None or not model.shares_passes:
        return
    progress("running pieces of prompts of all lengths once")
    planned = _PLANNED if _repeats(model) else SHORT
    most = min(planned, model.context or planned)
    if memory is not None:
        most = memory.chunk(most, _LEAST, most)
    state = new_row(model)
    for begin, width in pieces(most) if _repeats(model) else _first_pieces(most):
        run_pass(model, [PassRow([0] * width, begin, state)])
        mx.eval([layer.state for layer in state])


def pieces(most: int) -> list[tuple[int, int]]:
    """Where they begin and how wide they are, in prompts of at most so many tokens: first those
    from the beginning of a prompt, and then in the order of where they begin.
    """
    return _first_pieces(most) + [
        (begin, width)
        for begin in range(_BEGIN, most, _BEGIN)
        # In a pass with others it may be as wide as the longest of them.
        for width in range(_STEP, most - begin + _BEGIN + 1, _STEP)
    ]


def _first_pieces(most: int) -> list[tuple[int, int]]:
    return [(0, width) for width in sorted({padded_width(tokens) for tokens in range(1, most + 1)})]


def padded_width(tokens: int) -> int:
    """At least so many."""
    if tokens > _STEP:
        return -(-tokens // _STEP) * _STEP
    return max(_LEAST, 1 << (tokens - 1).bit_length())


def run_together(work: Sequence[tuple[Prefill, int]]) -> list[mx.array]:
    """Run about so many tokens of each prompt, in as few passes as they allow; returns what has to
    be evaluated for that. They have begun.
    """
    if work and work[0][0].model.encodes:
        return _encode([job for job, _ in work])
    states: list[mx.array] = []
    rows: list[tuple[Prefill, int, PassRow]] = []
    for job, tokens in work:
        if not _is_row(job, alone=len(work) == 1) or job.remaining <= 0 or tokens < 1:
            states += job.run(tokens)
            continue
        end = job.end_of_piece(tokens)
        rows.append((job, end, pass_row(job.model, job.ids, job.done, end, job.state)))
    _run_rows([job for job, _, _ in rows], [row for _, _, row in rows])
    for job, end, _ in rows:
        states += job.ran_to(end)
    return states


def _run_rows(jobs: Sequence[Prefill], rows: Sequence[PassRow]) -> None:
    if not any(job.reads_hidden for job in jobs):
        if jobs:
            run_pass(jobs[0].model, rows)
        return
    hidden = run_pass_with_hidden(jobs[0].model, rows)
    for job, states in zip(jobs, hidden, strict=True):
        job.read_hidden(states)


def shares(job: Prefill) -> bool:
    """Whether it may be run with others in one pass."""
    if job.model.encodes:
        return True
    if job.alone or not job.model.shares_passes or not job.plain:
        return False
    return job.model.pages is not None or job.target - job.expected <= _REACH


def width_of(job: Prefill) -> int:
    """Tokens of its row in a pass that runs what is left of it."""
    done = job.target - job.expected
    again = _again(job.model, done)
    return _width(job.model, job.expected + again, done - again)


def _is_row(job: Prefill, *, alone: bool) -> bool:
    """Whether it runs as a row of a pass. alone: the only one."""
    if alone:
        return _repeats(job.model) and job.model.shares_passes and job.plain
    return shares(job)


def _encode(jobs: Sequence[Prefill]) -> list[mx.array]:
    """Whole texts, in one pass."""
    prompts = [job.prompt for job in jobs if job.prompt is not None]
    pooled = jobs[0].model.encode(prompts)
    arrays: list[mx.array] = []
    for row, job in enumerate(jobs):
        job.pooled = pooled[row]
        arrays += job.ran_to(job.target)
    return arrays
