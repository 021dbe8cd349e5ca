"""Random scripts of submit, step and abort over a hybrid vision model (B1, B9, B47, B55)."""

import gc
import itertools
import os
import random
from collections.abc import Iterator
from typing import get_args

import mlx.core as mx
import pytest

from bushel import LLM, Handle, SamplingParams
from bushel.cache.batch_state import BatchState
from bushel.core.options import Attention
from bushel.engine import engine
from bushel.engine.footprint import footprint
from bushel.engine.step_costs import Stopwatch
from tests.engine.mixed_requests import Pair, ids, innocent, look
from tests.families import checkpoint_dir
from tests.families.images import LARGE, SMALL

pytestmark = pytest.mark.long

SCRIPTS = int(os.environ.get("BUSHEL_TEST_SCRIPTS", "100"))  # `make parity` plays 500
BLOCK = 50  # scripts per test, so that they can be spread over processes


def pool() -> list[Pair]:
    """Short replies with every way to end: limit, end token, stop token, stop string."""
    short = [
        (request, SamplingParams(**{**vars(params), "max_tokens": 3 + at}))
        for at, (request, params) in enumerate(innocent())
    ]
    return [
        *short,
        (ids(1, 11), SamplingParams(max_tokens=4, temperature=0)),
        (ids(9, 12), SamplingParams(max_tokens=9, temperature=0, stop=["e", "a"])),
        (ids(20, 13), SamplingParams(max_tokens=9, temperature=2, seed=5, n=2)),
        (look("Hm", LARGE, seed=8), SamplingParams(max_tokens=6, temperature=0)),
        (look("Ah", SMALL, seed=9), SamplingParams(max_tokens=6, temperature=1, seed=6, min_p=0.1)),
        (
            ids(40, 14),
            SamplingParams(max_tokens=9, temperature=0, stop_token_ids=list(range(0, 512, 7))),
        ),
    ]


@pytest.fixture(scope="module", params=get_args(Attention)[1:])
def llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    """Without MLX's cache of buffers: one taken from there may be larger than was asked for."""
    family = str(checkpoint_dir("qwen3_5_vl"))
    llm = LLM(family, max_batch=5, prefill_chunk=24, attention=request.param)
    before = mx.set_cache_limit(0)
    yield llm
    mx.set_cache_limit(before)


@pytest.fixture(scope="module")
def alone(llm: LLM) -> list[list[list[int]]]:
    """Every choice's tokens when its request is the only one."""
    outs = [llm.generate(*pair)[0] for pair in pool()]
    return [[choice.token_ids for choice in out.choices] for out in outs]


def play(llm: LLM, seed: int) -> list[tuple[int, Handle]]:
    """One script; integrity is checked after every step. Returns what was submitted."""
    rng = random.Random(seed)
    requests = pool()
    handles: list[tuple[int, Handle]] = []
    for _ in range(rng.randrange(4, 16)):
        act = rng.random()
        if act < 0.45 and len(handles) < 7:
            which = rng.randrange(len(requests))
            handles.append((which, llm.submit(*requests[which])))
        elif act < 0.55 and handles:
            rng.choice(handles)[1].abort()
        else:
            llm.step()
        llm.check_integrity()
    while not all(handle.done for _, handle in handles):
        llm.step()
        llm.check_integrity()
    return handles


@pytest.fixture(scope="module", params=get_args(Attention)[1:])
def short_llm(request: pytest.FixtureRequest) -> Iterator[LLM]:
    """Memory for two rows, which are promised hardly more than they have."""
    family = str(checkpoint_dir("qwen3_5_vl"))
    with pytest.MonkeyPatch.context() as patch:
        for module in ("request_queue", "memory_sharing"):
            patch.setattr(f"bushel.engine.{module}.GROWTH", 1)
        patch.setattr("bushel.engine.request_queue.ROOM", 2)
        patch.setattr("bushel.core.footprint.STEP", 16)
        with LLM(family, attention=request.param) as llm:
            sizes = footprint(llm._engine.model)  # type: ignore[union-attr]
        limit = sizes.peak(2, 64, 24)
        yield LLM(
            family,
            max_batch=5,
            prefill_chunk=24,
            attention=request.param,
            memory_limit=limit,
            headroom=0,
        )


@pytest.mark.parametrize("block", range(SCRIPTS // BLOCK))
def test_no_shortage_changes_an_answer_or_loses_a_page(short_llm: LLM, block: int) -> None:
    """Rows yield and come back, and are answered as they are alone. B62, B63."""
    alone = [short_llm.generate(*pair)[0] for pair in pool()]
    expected = [[choice.token_ids for choice in out.choices] for out in alone]
    assert not any(out.error for out in alone)
    before = short_llm.status()["preemptions"]
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        assert mismatches(play(short_llm, seed), expected) == [], f"script {seed}"
        assert short_llm.status()["requests"] == []
    # Padded rows are refused a slot more often than they outgrow theirs: few or none yield here.
    in_pages = short_llm.status()["attention"].get("kv") == "pages"
    assert short_llm.status()["preemptions"] > before or not in_pages


def memory() -> int:
    mx.synchronize()  # the step that was ahead when all had ended
    gc.collect()
    return mx.get_active_memory()


def play_again(llm: LLM, seed: int) -> None:
    """With a clock that only counts, so that the same rows meet every time."""
    assert llm._engine is not None
    ticks = itertools.count()
    llm._engine._times.clock = lambda: next(ticks) / 1000
    llm._engine._times.stopwatch = Stopwatch(behind=False)
    play(llm, seed)


def mismatches(played: list[tuple[int, Handle]], alone: list[list[list[int]]]) -> list[str]:
    wrong = []
    for which, handle in played:
        for choice, expected in zip(handle.output.choices, alone[which], strict=True):
            cut = choice.finish_reason == "abort"
            got, want = choice.token_ids, expected[: len(choice.token_ids)] if cut else expected
            if choice.error or got != want:
                wrong.append(f"request {which}: {got} instead of {want} {choice.error or ''}")
    return wrong


@pytest.mark.parametrize("block", range(SCRIPTS // BLOCK))
def test_no_script_changes_an_answer_or_leaves_anything_behind(
    llm: LLM, alone: list[list[list[int]]], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request of a script is answered as it is alone. B1, B9, B47, B55."""
    # Tokens chosen at once, as on a GPU, and together with the next forward pass, as on a CPU.
    monkeypatch.setattr(engine, "LATE", block % 2 == 0)
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    for seed in seeds:
        assert mismatches(play(llm, seed), alone) == [], f"script {seed}"
        assert llm.status()["requests"] == []
        assert llm.status()["memory"]["state_buffers"] == 0
    # Compiled functions keep a few constants per batch size; those are all known after the first
    # time. The smallest buffer has a byte, so that equal bytes mean equal buffers.
    for seed in seeds[:5]:
        play_again(llm, seed)
    before = memory()
    for seed in seeds[:5]:
        play_again(llm, seed)
    assert memory() == before


def test_scripts_notice_a_row_that_is_dropped_in_the_wrong_place(
    llm: LLM, alone: list[list[list[int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: leaving keeps the right number of rows, but the wrong ones."""
    leave = BatchState.leave

    def wrong(rows: BatchState, keep: list[int]) -> None:
        count = len(rows)
        right = [rows.positions[row] for row in keep]
        leave(rows, [count - 1 - row for row in reversed(keep)] if len(keep) > 1 else keep)
        rows.positions = right

    monkeypatch.setattr(BatchState, "leave", wrong)
    monkeypatch.setattr(LLM, "check_integrity", lambda _: None)
    assert any(mismatches(play(llm, seed), alone) for seed in range(60))
