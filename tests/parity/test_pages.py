"""Rows in pages say what they say alone; which families have pages, and why others have none.

On a CPU each row's pages are put together and MLX attends to them, so that what is tried here is
who holds which page; what a GPU does is tried with its kernels compiled for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, SamplingParams
from bushel.cache.paged.layer_pages import LayerPages
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.page_table import PageTable
from bushel.cache.paged.paged_kv import table_of
from bushel.cache.prefix.paged_segment import PagedForm
from bushel.core import BushelError, ModelError
from bushel.core.options import Attention
from bushel.engine.attention_route import choose_attention
from tests.cache.paged.host_kernels import everywhere
from tests.depth import often, one_in

from ..families.text import TEXT
from ..families.vision import VISION
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
        ("glm4_moe_lite", "kimi_k25", "kimi_vl-text", "paddleocr_vl", "xing4_0"),
        "a mask of all tokens",
    ),
    **dict.fromkeys(
        ("mistral_large3", "paligemma2", "kimi_k25_vl", "kimi_k3_vl"), "a mask of all tokens"
    ),
    "limite": "_idx",
    "plamo": "tile",
    "stablelm": "astype",
    "gemma3n": "keys_and_values",
    "gemma3n_vl": "rank 4",
    "afm7": "keys_and_values",
    "mistral4": "swapaxes",
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl"), "of another kind"),
}
# Families whose keys and values are of a class of their own.
NO_PLAIN_KEYS = ("gemma2",)


def routes(name: str) -> dict[str, str]:
    model = loaded(subject(name).path, dtype=None)
    try:
        return {} if model.single else choose_attention(model, "auto")
    finally:
        model.pages = None


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
        assert route == "pages" or name in NO_PLAIN_KEYS, route


@pytest.mark.skipif(mx.default_device() != mx.cpu, reason="on a GPU they have pages")
def test_on_a_cpu_rows_are_padded_unless_pages_are_asked_for() -> None:
    assert routes("llama") == {"kv": "padded rows (pages are for GPUs)"}


def test_pages_that_a_model_cannot_have_are_refused_with_the_reason() -> None:
    with pytest.raises(ModelError, match=r"attention='pages': .*a mask of all tokens"):
        LLM(subject("deepseek_v3").path, attention="pages")
    with pytest.raises(BushelError, match="attention must be one of auto, pages, padded"):
        LLM(subject("llama").path, attention="sheets")  # type: ignore[arg-type]


@pytest.fixture
def everything_is_more_than_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bushel.engine.batching_check.bound", lambda _: 1e-12)


def test_a_model_that_rounds_by_more_than_most_has_pages(
    on_a_gpu: None, everything_is_more_than_rounding: None
) -> None:
    """As far from alone as padded rows are is rounding."""
    assert routes("llama") == {"kv": "pages"}


def test_pages_that_are_wrong_are_not_taken_for_rounding(
    on_a_gpu: None, everything_is_more_than_rounding: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_neighbours_page(monkeypatch)
    assert routes("llama")["kv"].startswith("padded rows (the self-check found")


FAMILIES = {**TEXT, **VISION}
PAGED = [name for name in WHOLE if name not in NOT_PAGED and "kv" in FAMILIES[name].kinds]


def check(name: str, scenario: Callable[..., Any]) -> None:
    result = scenario(subject(name), attention="pages")
    assert result.ok, str(result)
    assert result.largest_batch > 1


@pytest.mark.parametrize("name", often(PAGED, "qwen3_5_vl"))
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
    if "kv" in whole.kinds and not whole.single and name not in NO_PLAIN_KEYS:
        check(name, churn)


def scarce(patch: pytest.MonkeyPatch) -> None:
    """The pool has no page too many, from one step to the next."""
    reserve = PageTable.reserve

    def repacked(self: PageTable, positions: list[int], count: int) -> None:
        self.pool.resize(0)
        reserve(self, positions, count)

    patch.setattr(PageTable, "reserve", repacked)


@pytest.mark.parametrize("scenario", often([leaves, fork, again], leaves))
def test_a_pool_that_is_made_smaller_keeps_everyones_pages(
    scenario: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows leave one after the other, and those who stay go on. B1."""
    scarce(monkeypatch)
    shrink, times = PagePool._shrink, []

    def counted(self: PagePool, capacity: int) -> None:
        times.append(self.capacity - capacity)
        shrink(self, capacity)

    monkeypatch.setattr(PagePool, "_shrink", counted)
    check("llama", scenario)
    assert sum(times) > 0


@pytest.mark.parametrize(
    ("name", "scenario"),
    [
        ("gpt_oss", again),
        *(
            pytest.param(name, scenario, marks=pytest.mark.long)
            for name in ("llama", "gpt_oss", "qwen3_5")
            for scenario in (fork, again)
            if name != "gpt_oss" or scenario is fork
        ),
    ],
)
def test_rows_say_the_same_where_kernels_write_in_place(
    name: str,
    scenario: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a GPU, with its kernels compiled for the CPU. B1, B64."""
    everywhere(monkeypatch)
    check(name, scenario)


# -- controls -----------------------------------------------------------------------------------


def a_neighbours_page(patch: pytest.MonkeyPatch) -> None:
    """A row takes a page that another holds."""
    take = PagePool._take

    def wrong(self: PagePool, count: int) -> list[int]:
        taken = take(self, count)
        held = [pages.ids[0] for pages in self._lists if pages.ids]
        return [held[0], *taken[1:]] if held else taken

    patch.setattr(PagePool, "_take", wrong)
    patch.setattr(PagePool, "check_integrity", lambda *_: None)


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
    """The pool is made smaller, and what was behind its end is not moved."""
    scarce(patch)
    patch.setattr(LayerPages, "move", lambda *_: None)


def given_back_too_early(patch: pytest.MonkeyPatch) -> None:
    """Pages of rows that stay are free for others."""
    leave = PageTable.leave

    def wrong(self: PageTable, keep: list[int]) -> None:
        leave(self, keep)
        self.pool._free.extend(page for pages in self.rows for page in pages.ids)

    patch.setattr(PageTable, "leave", wrong)
    patch.setattr(PagePool, "check_integrity", lambda *_: None)


def a_shared_page_written_in_place(patch: pytest.MonkeyPatch) -> None:
    """Choices of one prompt go on in the same last page."""
    patch.setattr(PagePool, "_may_write", lambda *_: True)


def pages_of_other_tokens(patch: pytest.MonkeyPatch) -> None:
    """What is restored is another row's."""
    assemble = PagedForm.assemble

    def wrong(self: PagedForm, segments: Any, key: Any, fresh: Any) -> None:
        assemble(self, segments, key, fresh)
        table = table_of(fresh)
        assert table is not None
        table.rows[0].ids.reverse()

    patch.setattr(PagedForm, "assemble", wrong)


FAULTS = {
    a_neighbours_page: leaves,
    stale_lengths: leaves,
    pages_that_stay: leaves,
    given_back_too_early: leaves,
    pages_of_other_tokens: again,
}


def choices(attention: Attention) -> list[tuple[tuple[int, ...], float]]:
    """Four choices of one prompt that go on differently: tokens, and how likely they were."""
    with LLM(subject("llama").path, attention=attention, max_batch=4) as llm:
        params = SamplingParams(
            n=4, seed=5, temperature=1.5, max_tokens=24, logprobs=0, ignore_eos=True
        )
        (output,) = llm.generate({"prompt_token_ids": list(range(20, 41))}, params)
        return [
            (tuple(choice.token_ids), sum(token.logprob for token in choice.logprobs or ()))
            for choice in output.choices
        ]


def test_choices_part_in_the_middle_of_a_page() -> None:
    """Each goes on in a copy of the page in which they part. B62."""
    apart = [abs(one - two) for (_, one), (_, two) in zip(*both("pages"), strict=True)]
    assert max(apart) < BOUND * 24


def both(attention: Attention) -> tuple[list[Any], list[Any]]:
    alone, shared = choices("padded"), choices(attention)
    assert [tokens for tokens, _ in alone] == [tokens for tokens, _ in shared]
    assert len({tokens for tokens, _ in alone}) == 4
    return alone, shared


def test_choices_that_share_the_page_in_which_they_part_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bushel.engine.attention_route.paging_fault", lambda _: None)
    a_shared_page_written_in_place(monkeypatch)
    with pytest.raises(AssertionError):
        both("pages")


@pytest.mark.parametrize("fault", one_in(2, FAULTS))
def test_a_mistake_with_pages_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole: Subject = subject("llama")
    monkeypatch.setattr("bushel.engine.attention_route.paging_fault", lambda _: None)
    fault(monkeypatch)
    result = FAULTS[fault](whole, attention="pages")
    assert not result.ok
    assert result.difference > 10 * BOUND, str(result)
