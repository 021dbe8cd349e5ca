"""What does not fit waits, what never can is refused, and the limit is never passed (B51)."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, ModelError, SamplingParams
from bushel.core.footprint import Memory
from bushel.engine.footprint import footprint
from bushel.engine.plan import Chunk, PendingPrompt, Policy, State
from bushel.engine.prompt_runner import PromptRunner
from bushel.engine.scheduler import schedule
from tests.depth import often
from tests.families import checkpoint_dir
from tests.llm.request_builders import ids, prompt

from .test_footprint import MB, SIZES

FOREVER = 1 << 62


def limit_for(rows: int, length: int, name: str) -> int:
    """Bytes in which so many rows of a family fit, and not one more."""
    with LLM(str(checkpoint_dir(name))) as llm:
        sizes = footprint(llm._engine.model)  # type: ignore[union-attr]
    limit = sizes.peak(rows, length, 16)
    assert sizes.peak(rows + 1, length, 16) > limit
    return limit


REQUESTS = [(450, 0), (40, 1), (350, 2), (150, 3), (500, 4), (20, 5), (300, 6), (64, 7)] * 2
LONGEST = 500 + 12
PARAMS = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module", params=often(["llama", "qwen3_5"], "qwen3_5"))
def flooded(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[list[int]]]]:
    """A family and its replies without a limit."""
    with LLM(str(checkpoint_dir(request.param))) as llm:
        outs = llm.generate([prompt(*it) for it in REQUESTS], PARAMS)
        yield request.param, [out.token_ids for out in outs]


def peak_of(llm: LLM) -> tuple[int, list[list[int]], int]:
    """Serve the flood: the allocator's peak beyond what was there, replies, largest batch."""
    weights = footprint(llm._engine.model).weights  # type: ignore[union-attr]
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    outs = llm.generate([prompt(*request) for request in REQUESTS], PARAMS)
    assert [out.finish_reason for out in outs] == ["length"] * len(outs), outs[0].error
    peak = weights + mx.get_peak_memory() - before
    return peak, [out.token_ids for out in outs], llm.status()["max_decode_batch"]


@pytest.mark.parametrize("order", often(["arrival", "shortest"], "arrival"))
def test_a_flood_beyond_memory_all_finishes_under_the_limit(
    flooded: tuple[str, list[list[int]]], order: str
) -> None:
    name, replies = flooded
    limit = limit_for(3, LONGEST, name)
    with LLM(str(checkpoint_dir(name)), memory_limit=limit, headroom=0, order=order) as llm:  # type: ignore[arg-type]
        peak, got, batch = peak_of(llm)
    assert got == replies
    assert 1 < batch < len(REQUESTS) // 2
    assert peak <= limit


def test_control_without_the_limit_the_flood_takes_more(
    flooded: tuple[str, list[list[int]]],
) -> None:
    name, _ = flooded
    with LLM(str(checkpoint_dir(name))) as llm:
        peak, _, _ = peak_of(llm)
    assert peak > limit_for(3, LONGEST, name)


def test_a_prompt_that_can_never_fit_is_refused_with_the_numbers() -> None:
    limit = limit_for(1, 500, "llama")
    with LLM(str(checkpoint_dir("llama")), memory_limit=limit, headroom=0) as llm:
        fine, refused = llm.generate([prompt(400), prompt(2000)], SamplingParams(max_tokens=4))
        assert fine.error is None
        assert refused.finish_reason == "error"
        assert "2000 tokens" in (refused.error or "")
        assert "GB" in (refused.error or "")
        assert llm.status()["waiting"] == 0


def test_a_prompt_whose_logits_are_wanted_runs_in_pieces_that_leave_room_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With large vocabularies they take more than all else of a pass. B51."""
    pieces: list[int] = []
    run = PromptRunner.run

    def noted(runner: PromptRunner, chunks: tuple[Chunk, ...], *how: Any, **more: Any) -> Any:
        pieces.extend(chunk.tokens for chunk in chunks)
        return run(runner, chunks, *how, **more)

    monkeypatch.setattr(PromptRunner, "run", noted)
    with LLM("bushel:tiny") as llm:
        sizes = footprint(llm._engine.model)  # type: ignore[union-attr]
    room, length = 8 * MB, 1000
    limit = sizes.peak(1, length + 100, 16) + room
    with LLM("bushel:tiny", memory_limit=limit, headroom=0) as llm:
        longest = {}
        for wanted in (None, 0, 5):
            pieces.clear()
            asked = SamplingParams(max_tokens=1, prompt_logprobs=wanted)
            (out,) = llm.generate(prompt(length, wanted or 9), asked)
            assert out.error is None
            longest[wanted] = max(pieces)
    assert longest[None] * sizes.per_row > room  # the control: their logits would not fit
    assert longest[0] * sizes.per_row < room > longest[5] * sizes.per_row


def test_a_reply_is_cut_where_memory_ends() -> None:
    """As it is at the context: agents ask for more than they need. B50."""
    limit = limit_for(1, 500, "llama")
    with LLM(str(checkpoint_dir("llama")), memory_limit=limit, headroom=0) as llm:
        (out,) = llm.generate(prompt(480), SamplingParams(max_tokens=3000, ignore_eos=True))
    assert out.finish_reason == "length"
    assert 480 + len(out.token_ids) == 500


def test_choices_of_a_request_decode_as_memory_allows() -> None:
    """Their prompt's state is held once for those that wait, so that all of them are served."""
    four = SamplingParams(max_tokens=4, n=4, seed=1)
    with LLM(str(checkpoint_dir("llama"))) as llm:
        (free,) = llm.generate(prompt(400), four)
        assert llm.status()["max_decode_batch"] == 4
    limit = limit_for(3, 500, "llama")
    with LLM(str(checkpoint_dir("llama")), memory_limit=limit, headroom=0) as llm:
        (out,) = llm.generate(prompt(400), four)
        assert [choice.token_ids for choice in out.choices] == [
            choice.token_ids for choice in free.choices
        ]
        assert llm.status()["max_decode_batch"] == 2
        (out,) = llm.generate(prompt(900), replace(four, n=3))
        assert "2 rows" in (out.error or "")


def test_a_model_that_leaves_no_room_is_refused_at_the_start() -> None:
    with pytest.raises(ModelError, match="weights"):
        LLM(str(checkpoint_dir("llama")), memory_limit=1 << 19)


def test_headroom_is_left_alone() -> None:
    limit = limit_for(1, 500, "llama")
    with LLM(str(checkpoint_dir("llama")), memory_limit=limit + MB, headroom=MB) as llm:
        assert llm.status()["memory"]["limit_bytes"] == limit


def test_status_tells_what_is_promised() -> None:
    with LLM(str(checkpoint_dir("llama"))) as llm:
        empty = llm.status()["memory"]
        handle = llm.submit(prompt(100), SamplingParams(max_tokens=100))
        llm.step()
        held = llm.status()["memory"]
        assert empty["weights_bytes"] < empty["promised_bytes"] < held["promised_bytes"]
        assert held["promised_bytes"] < held["limit_bytes"]
        handle.abort()
        assert llm.status()["memory"]["promised_bytes"] == empty["promised_bytes"]


# -- the order of waiting ------------------------------------------------------------------


def waiting(*lengths: int, ages: tuple[float, ...] = ()) -> tuple[PendingPrompt, ...]:
    ages = ages or (0.0,) * len(lengths)
    return tuple(
        PendingPrompt(at, length - 1, 100.0 - age, at, 0, length)
        for at, (length, age) in enumerate(zip(lengths, ages, strict=True))
    )


def admitted(
    jobs: tuple[PendingPrompt, ...], policy: Policy, memory: Memory | None = None
) -> list[int]:
    return list(schedule(State(100.0, (), (), (), jobs, memory=memory), policy).admit)


def fitting(rows: int, length: int) -> Memory:
    return Memory(SIZES, SIZES.peak(rows, length, 16), FOREVER)


def test_a_prompt_that_does_not_fit_yet_is_overtaken_until_it_is_old() -> None:
    """It neither blocks others for long, nor do they keep it out for ever. B67."""
    running = fitting(2, 5000).with_rows(1, 5000)
    assert admitted(waiting(9000, 100, 100), Policy(), running) == [1]
    assert admitted(waiting(9000, 100, 100, ages=(11.0, 0.0, 0.0)), Policy(), running) == []


def test_shortest_first_yields_to_age() -> None:
    short = Policy(max_batch=1, order="shortest", oldest=10.0)
    assert admitted(waiting(500, 20, 100), short) == [1]
    assert admitted(waiting(500, 20, 100, ages=(11.0, 0.0, 12.0)), short) == [0]
    assert admitted(waiting(500, 20, 100), Policy(max_batch=1)) == [0]


def test_an_old_prompt_that_does_not_fit_holds_the_short_ones_back() -> None:
    short = Policy(order="shortest", oldest=10.0)
    memory = fitting(2, 5000).with_rows(1, 5000)
    jobs = waiting(9000, 20, ages=(11.0, 0.0))
    assert admitted(jobs, short, memory) == []
    assert admitted(waiting(9000, 20), short, memory) == [1]


def test_a_heavy_context_makes_chunks_smaller() -> None:
    policy = Policy(prefill_chunk=512)
    held = SIZES.weights + SIZES.state(1, 60_000) + SIZES.per_row
    room = Memory(SIZES, held + 200 * MB, FOREVER)
    early, late = (PendingPrompt(0, 500, 0.0, 0, done, 60_000) for done in (0, 59_000))
    sizes = [
        schedule(State(100.0, (), (), (job,), memory=room.with_rows(1, 60_000)), policy)
        .chunks[0]
        .tokens
        for job in (early, late)
    ]
    assert sizes[0] == 500
    assert 16 <= sizes[1] < 500


# -- over time -----------------------------------------------------------------------------


@pytest.mark.parametrize("many", [150, pytest.param(500, marks=pytest.mark.long)])
def test_many_requests_leave_nothing_behind(many: int) -> None:
    """Bytes and buffers after each round of them are the same. B55."""
    with LLM(str(checkpoint_dir("lfm2")), max_batch=64) as llm:
        assert llm._engine is not None
        llm._engine._times.clock = lambda: 0.0  # who meets whom follows from what prompts cost
        params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
        seen = []
        for round_ in range(4):
            outs = llm.generate(
                [{"prompt_token_ids": ids(2 + at % 7, round_)} for at in range(many)], params
            )
            assert all(out.finish_reason == "length" for out in outs)
            llm.clear_cache()
            mx.synchronize()
            memory = llm.status()["memory"]
            seen.append((mx.get_active_memory(), memory["state_bytes"], memory["state_buffers"]))
    assert set(seen[1:]) == {seen[1]}, seen


@pytest.mark.long
@pytest.mark.parametrize("tokens", [700, pytest.param(1500, marks=pytest.mark.long)])
def test_long_replies_hold_only_their_state(tokens: int) -> None:
    """Bytes grow by the keys and values of each step of 256, buffers not at all. B55."""
    with LLM(str(checkpoint_dir("lfm2"))) as llm:
        params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)
        rows = [llm.submit(prompt(20, seed), params) for seed in range(2)]
        seen = []
        while not all(row.done for row in rows):
            for _ in range(100):
                llm.step()
            mx.synchronize()
            memory = llm.status()["memory"]
            if memory["state_buffers"]:
                rest = mx.get_active_memory() - memory["state_bytes"]
                seen.append((rest, memory["state_buffers"]))
        assert len(seen) >= tokens // 100 - 1
        assert len({buffers for _, buffers in seen}) == 1
        # What is not state: weights, and a step in flight.
        low, high = min(rest for rest, _ in seen[1:]), max(rest for rest, _ in seen[1:])
        assert high - low < 64 << 10, seen
