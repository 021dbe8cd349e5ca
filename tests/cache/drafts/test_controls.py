"""The comparison of rows that draft notices what can go wrong, for every kind of layer."""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import pytest

from bushel.cache.batch_state import BatchState
from bushel.cache.paged import sdpa
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.page_table import PageTable
from bushel.cache.paged.paged_kv import pageable
from bushel.cache.ragged import ragged_caches
from bushel.cache.ragged.row_lengths import RowLengths
from bushel.core import IntegrityError
from bushel.models import load, recurrent_rollback
from bushel.models.recurrent_rollback import Tape
from tests.depth import often, one_in
from tests.families import checkpoint_dir
from tests.families.text import WINDOW
from tests.parity.draft_mistakes import one_ahead_in_ragged_rows, one_ahead_in_rings, one_more

from .scripts import BOUND, Rows

RIGHT: list[Any] = ["llama", "llama_sliding", "gpt_oss", "qwen3_5", "qwen3_5_vl", "qwen3_next"]
RIGHT += ["mamba2", "falcon_h1", "lfm2"]
RECURRENT = ["qwen3_5", "qwen3_5_vl", "qwen3_next", "mamba2", "falcon_h1"]
RINGS = ("llama_sliding", "gpt_oss")
KEYLESS = ("llama_sliding", "mamba2")  # none but those in rings


def rows_of(name: str, *, pages: bool = False) -> Rows:
    model = load(str(checkpoint_dir(name)))
    if pages:
        sdpa.install()
        model.pages = PagePool(sum(map(pageable, model.make_state())))
    return Rows(model)


def difference(rows: Rows) -> float:
    """Of a short script: uneven drafts, of which uneven parts are kept, and steps after them."""
    rows.join([2 * WINDOW, 5, 3 * WINDOW + 2])
    for counts, kept in (([7, 4, 1], [2, 3, 1]), ([1, 8, 6], [1, 1, 5])):
        rows.draft(counts, kept)
        rows.step()
    return rows.worst


def lengths_of_all(patch: pytest.MonkeyPatch) -> None:
    """Keys and values are not cut to what is kept."""
    right, begin = RowLengths.set, BatchState.begin_draft
    wide: list[int] = []

    def begun(rows: BatchState, counts: Sequence[int]) -> None:
        wide.extend(position + max(counts) for position in rows.positions)
        begin(rows, counts)

    def wrong(lengths: RowLengths, tokens: Sequence[int]) -> None:
        right(lengths, wide or tokens)
        wide.clear()

    patch.setattr(BatchState, "begin_draft", begun)
    patch.setattr(RowLengths, "set", wrong)


def not_rolled_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tape, "after", lambda tape, now, width, kept: list(now))


def rolled_back_whole(patch: pytest.MonkeyPatch) -> None:
    """As if nothing had been kept."""
    patch.setattr(Tape, "after", lambda tape, now, width, kept: list(tape.before))


def of_others(kept: recurrent_rollback.KeptTokens) -> recurrent_rollback.KeptTokens:
    first, *rest = kept.counts
    return recurrent_rollback.KeptTokens([*rest, first])


def mask_of_other_rows(patch: pytest.MonkeyPatch) -> None:
    right = Tape._replayed
    patch.setattr(recurrent_rollback, "KEPT_STATES", 0)
    patch.setattr(Tape, "_replayed", lambda tape, kept: right(tape, of_others(kept)))


def states_of_other_rows(patch: pytest.MonkeyPatch) -> None:
    right = Tape._chosen
    patch.setattr(Tape, "_chosen", lambda tape, kept: right(tape, of_others(kept)))


def windows_of_other_rows(patch: pytest.MonkeyPatch) -> None:
    right = recurrent_rollback._window
    patch.setattr(
        recurrent_rollback,
        "_window",
        lambda source, size, kept: right(source, size, of_others(kept)),
    )


def no_spare_slots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ragged_caches, "SPARE", 0)


WRONG: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    *((name, one_more) for name in RIGHT),
    *((name, lengths_of_all) for name in ("llama", "llama_sliding", "qwen3_5", "falcon_h1")),
    *((name, not_rolled_back) for name in (*RECURRENT, "lfm2")),
    *((name, rolled_back_whole) for name in (*RECURRENT, "lfm2")),
    *((name, mask_of_other_rows) for name in RECURRENT),
    *((name, states_of_other_rows) for name in RECURRENT),
    *((name, windows_of_other_rows) for name in (*RECURRENT, "lfm2")),
    *((name, one_ahead_in_ragged_rows) for name in RIGHT if name not in KEYLESS),
    *((name, mistake) for name in RINGS for mistake in (one_ahead_in_rings, no_spare_slots)),
]
# Each mistake, where it is made to another kind of layer.
ONCE = [
    *((name, one_more) for name in ("llama_sliding", "falcon_h1", "mamba2", "gpt_oss")),
    *((name, lengths_of_all) for name in ("llama_sliding", "qwen3_5")),
    *((name, not_rolled_back) for name in ("mamba2", "lfm2")),
    *((name, rolled_back_whole) for name in ("qwen3_next", "lfm2")),
    *((name, mask_of_other_rows) for name in ("qwen3_5_vl", "falcon_h1")),
    *((name, states_of_other_rows) for name in ("qwen3_5", "mamba2")),
    *((name, windows_of_other_rows) for name in ("qwen3_next", "lfm2")),
    ("lfm2", one_ahead_in_ragged_rows),
    ("gpt_oss", no_spare_slots),
]


@pytest.mark.parametrize("name", one_in(3, RIGHT))
def test_the_script_is_right_if_nothing_is_wrong(name: str) -> None:
    assert difference(rows_of(name)) < BOUND


@pytest.mark.parametrize("name", one_in(3, RECURRENT))
def test_states_that_are_too_large_to_be_kept_are_computed_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent_rollback, "KEPT_STATES", 0)
    assert difference(rows_of(name)) < BOUND


@pytest.mark.parametrize(
    ("name", "wrong"), often(WRONG, *ONCE), ids=lambda of: getattr(of, "__name__", of)
)
def test_a_draft_that_ends_wrongly_is_noticed(
    name: str, wrong: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(name)
    wrong(monkeypatch)
    assert difference(rows) > 10 * BOUND


@pytest.mark.parametrize("name", often(["llama", "gpt_oss", "qwen3_5"], "qwen3_5"))
def test_pages_that_end_wrongly_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert difference(rows_of(name, pages=True)) < BOUND
    rows = rows_of(name, pages=True)
    one_more(monkeypatch)
    assert difference(rows) > 10 * BOUND


def test_pages_that_do_not_go_back_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of("llama", pages=True)
    monkeypatch.setattr(PageTable, "go_back", lambda table, positions: None)
    rows.join([15])
    rows.draft([8], [1])
    with pytest.raises(IntegrityError, match="2 pages for 16 tokens"):
        rows.batch.check_integrity()


def test_a_draft_that_fails_leaves_nothing_open() -> None:
    """Whoever comes next, in this batch or another, is right."""
    failed = rows_of("qwen3_5")
    failed.join([9, 5])
    failed.batch.begin_draft([3, 2])
    mx.eval(failed.model.forward(mx.array([[50, 51, 52]] * 2), [9, 5], failed.batch.layers))
    after = Rows(failed.model)
    assert difference(after) < BOUND
