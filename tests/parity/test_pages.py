"""Rows in pages say what they say alone; which families have pages, and why others have none.

On a CPU each row's pages are put together and MLX attends to them, so that what is tried here is
who holds which page; the kernel itself is tried in `tests/cache/paged`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM
from bushel.cache.paged.page_table import PageTable
from bushel.cache.paged.paged_kv import PagedKVCache
from bushel.core import BushelError, ModelError
from bushel.engine.attention_route import choose_attention

from .run import BOUND, loaded
from .scenarios import WHOLE, again, churn, fork, leaves, tried
from .subject import Subject, subject

# What a family's attention does with its keys beside attending to them.
NOT_PAGED = {
    **dict.fromkeys(
        ("kimi_linear", "bailing_hybrid", "bailing_moe_v3", "kimi_k3", "deepseek_v3"),
        "a mask of all tokens",
    ),
    **dict.fromkeys(
        ("glm4_moe_lite", "kimi_k25", "kimi_vl-text", "paddleocr_vl"), "a mask of all tokens"
    ),
    "plamo": "tile",
    "stablelm": "astype",
    "gemma3n": "keys_and_values",
    "mistral4": "swapaxes",
}


def routes(name: str) -> dict[str, str]:
    model = loaded(subject(name).path, dtype=None)
    try:
        return {} if model.single else choose_attention(model, "auto")
    finally:
        model.paged = False


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as who is asked to try pages; what they run on stays what it is."""
    monkeypatch.setattr("bushel.engine.attention_route.ON_CPU", False)


@pytest.mark.long
@pytest.mark.parametrize("name", tried())
def test_a_family_has_pages_or_a_reason(name: str, on_a_gpu: None) -> None:
    if "kv" not in subject(name).kinds:
        return
    route = routes(name).get("kv", "")
    if name in NOT_PAGED:
        assert route.startswith("padded rows (")
        assert NOT_PAGED[name] in route
    elif not subject(name).single:
        assert route == "pages" or name == "gemma2", route


def test_on_a_cpu_rows_are_padded_unless_pages_are_asked_for() -> None:
    assert routes("llama") == {"kv": "padded rows (pages are for GPUs)"}


def test_pages_that_a_model_cannot_have_are_refused_with_the_reason() -> None:
    with pytest.raises(ModelError, match=r"attention='pages': .*a mask of all tokens"):
        LLM(subject("deepseek_v3").path, attention="pages")
    with pytest.raises(BushelError, match="attention must be one of auto, pages, padded"):
        LLM(subject("llama").path, attention="sheets")  # type: ignore[arg-type]


PAGED = [name for name in WHOLE if name not in NOT_PAGED and "kv" in subject(name).kinds]


def check(name: str, scenario: Callable[..., Any]) -> None:
    result = scenario(subject(name), attention="pages")
    assert result.ok, str(result)
    assert result.largest_batch > 1


@pytest.mark.parametrize("name", PAGED)
def test_rows_that_come_and_go_in_pages_say_what_they_say_alone(name: str) -> None:
    """And what is kept of them is theirs, when they come again. B1, B2, B32."""
    check(name, again)


@pytest.mark.long
@pytest.mark.parametrize("scenario", [churn, fork, leaves])
@pytest.mark.parametrize("name", PAGED)
def test_every_scenario_in_pages(name: str, scenario: Callable[..., Any]) -> None:
    """Rows that come and go, forks, and every way to end. B1, B2, B4."""
    check(name, scenario)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name for name in tried() if name not in NOT_PAGED and name not in PAGED]
)
def test_other_families_in_pages(name: str) -> None:
    """One of each sort, as in the table. B1."""
    whole = subject(name)
    if "kv" in whole.kinds and not whole.single and name != "gemma2":
        check(name, churn)


def scarce(patch: pytest.MonkeyPatch) -> None:
    """The pool grows by no more than is needed, and is made smaller whenever half of it is idle."""
    patch.setattr("bushel.cache.paged.page_table._GROWTH", 0)


def test_a_pool_that_is_made_smaller_keeps_everyones_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows leave one after the other, and those who stay go on. B1."""
    scarce(monkeypatch)
    repack, times = PagedKVCache.repack, []

    def counted(self: PagedKVCache, pages: mx.array) -> None:
        times.append(len(pages))
        repack(self, pages)

    monkeypatch.setattr(PagedKVCache, "repack", counted)
    check("llama", leaves)
    assert times


# -- controls -----------------------------------------------------------------------------------


def a_neighbours_page(patch: pytest.MonkeyPatch) -> None:
    """A row that has come takes a page that another holds."""
    take = PageTable._take

    def wrong(self: PageTable, count: int) -> list[int]:
        pages = take(self, count)
        return [self.rows[0][0], *pages[1:]] if self.rows and count else pages

    patch.setattr(PageTable, "_take", wrong)
    patch.setattr(PageTable, "check_integrity", lambda *_: None)


def stale_lengths(patch: pytest.MonkeyPatch) -> None:
    """A step sees the lengths of the one before."""
    reserve = PageTable.reserve

    def wrong(self: PageTable, positions: list[int], count: int) -> None:
        before = self.after
        reserve(self, positions, count)
        if len(before) == len(self.after):
            self.after, self.lengths = before, mx.array(before)

    patch.setattr(PageTable, "reserve", wrong)


def pages_that_stay(patch: pytest.MonkeyPatch) -> None:
    """The pool is made smaller, and the layers keep theirs."""
    scarce(patch)
    patch.setattr(PagedKVCache, "repack", lambda *_: None)


def given_back_too_early(patch: pytest.MonkeyPatch) -> None:
    """Pages of rows that stay are free for others."""
    leave = PageTable.leave

    def wrong(self: PageTable, keep: list[int]) -> None:
        leave(self, keep)
        self._free.extend(page for pages in self.rows for page in pages)

    patch.setattr(PageTable, "leave", wrong)
    patch.setattr(PageTable, "check_integrity", lambda *_: None)


@pytest.mark.parametrize(
    "fault", [a_neighbours_page, stale_lengths, pages_that_stay, given_back_too_early]
)
def test_a_mistake_with_pages_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Subject = subject("llama")
    monkeypatch.setattr("bushel.engine.attention_route.batching_fault", lambda _: None)
    fault(monkeypatch)
    result = leaves(whole, attention="pages")
    assert not result.ok
    assert result.difference > 10 * BOUND, str(result)
