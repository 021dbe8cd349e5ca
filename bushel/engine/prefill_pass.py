"""Prompts in one forward pass: one, or several short ones that share it.

    row 0    a b c d e f g h     each from its own position on, over its own pages
    row 1    a b c . . . . .     what is beyond its end is seen by nobody before it
    row 2    a b c d e . . .

A short prompt costs little more than a pass through the weights, which many can share. Only where
all layers are pages, and where it was tried (`Model.shares_passes`).

A prompt that is alone can be made longer in the same way, up to one of few lengths (`EVEN`), so
that a device that plans anew for every length has seen it before. On CUDA that gained nothing: 16
prompts of 200 to 2,000 tokens that it had not seen made 379 to 431 tok/s as they were, and 389 as
even ones when all even lengths had been seen (8B, bfloat16, an H200).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from bushel.cache.paged.page_table import PageTable
from bushel.cache.paged.paged_kv import PagedKVCache, table_of
from bushel.engine.prefill import Prefill
from bushel.engine.scheduler import next_even
from bushel.models import Model, State

EVEN = False  # whether passes have few lengths


class PassRow(NamedTuple):
    ids: Sequence[int]
    position: int  # of the first
    state: State  # a lone row's, all in pages


def run_pass(model: Model, rows: Sequence[PassRow]) -> mx.array:
    """Run tokens of several rows, each of which is further on by its own then; logits [B, n, V]."""
    table = PageTable(model.pages)
    for row in rows:
        own = table_of(row.state)
        assert own is not None
        table.join(own.rows[0])
    layers: State = [PagedKVCache(layer.store, table, batch=True) for layer in rows[0].state]
    counts = [len(row.ids) for row in rows]
    positions = [row.position for row in rows]
    width = next_even(max(counts)) if EVEN else max(counts)
    table.reserve_prompts(positions, counts, width)
    tokens = np.zeros((len(rows), width), np.int32)
    for at, row in enumerate(rows):
        tokens[at, : len(row.ids)] = row.ids
    try:
        logits = model.forward(mx.array(tokens), positions, layers)
    finally:
        table.end_prompts()
    for row, position in zip(rows, table.after, strict=True):
        for layer in row.state:
            layer.position = position
    return logits


def run_together(work: Sequence[tuple[Prefill, int]]) -> list[mx.array]:
    """Run about so many tokens of each prompt, in as few passes as they allow; returns what has to
    be evaluated for that. They have begun.
    """
    states: list[mx.array] = []
    rows: list[tuple[Prefill, int, PassRow]] = []
    for job, tokens in work:
        shares = job.model.shares_passes and job.plain and (len(work) > 1 or EVEN)
        if not shares or job.remaining <= 0 or tokens < 1:
            states += job.run(tokens)
            continue
        end = job.end_of_piece(tokens)
        rows.append((job, end, PassRow(job.ids(end), job.done, job.state)))
    if rows:
        run_pass(rows[0][0].model, [row for _, _, row in rows])
    for job, end, _ in rows:
        states += job.ran_to(end)
    return states
