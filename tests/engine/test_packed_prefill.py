"""Prompts that share a forward pass are answered as they are alone (B1, B61)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, Handle, SamplingParams
from bushel.cache.layer_kind import Layer
from bushel.cache.packed_kv import PackedKVCache
from bushel.cache.packed_rows import pack
from bushel.cache.paged import sdpa
from bushel.cache.paged.layer_pages import LayerPages
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.page_table import PageTable
from bushel.core.footprint import Footprint, LayerFootprint, Memory
from bushel.core.options import Attention
from bushel.engine import engine, prefill_pass
from bushel.engine.engine import Engine
from bushel.engine.plan import Chunk, Costs, PendingPrompt, Plan, Policy, Row, State
from bushel.engine.prefill_pass import (
    PassRow,
    pass_row,
    pieces,
    plan_pieces,
    run_pass_with_hidden,
)
from bushel.engine.prompt_runner import PromptRunner
from bushel.engine.row_state import new_row
from bushel.engine.scheduler import schedule
from bushel.engine.step_costs import Stopwatch
from bushel.models import Model
from tests.depth import often
from tests.engine.mixed_requests import ids
from tests.families import checkpoint_dir

GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, logprobs=4)
PROMPTS = [ids(length, seed) for seed, length in enumerate((3, 40, 9, 75, 17, 1))]
BOUND = 1e-4


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many prompts each shared pass ran."""
    counts: list[int] = []
    run_pass = prefill_pass.run_pass

    def counted(model: Model, rows: Sequence[PassRow]) -> mx.array:
        counts.append(len(rows))
        return run_pass(model, rows)

    monkeypatch.setattr(prefill_pass, "run_pass", counted)
    return counts


def served(name: str = "llama", attention: Attention = "pages", **options: Any) -> LLM:
    """Nothing is known of costs, which would say how much padding is worth a pass."""
    llm = LLM(str(checkpoint_dir(name)), attention=attention, max_batch=8, **options)
    assert llm._engine is not None
    llm._engine._times.clock = lambda: 0.0
    return llm


def told(handle: Handle) -> list[tuple[int, float]]:
    (choice,) = handle.output.choices
    assert choice.error is None
    assert choice.logprobs is not None
    return [(token.token_id, token.logprob) for token in choice.logprobs]


def together(llm: LLM, prompts: list[dict[str, Any]] = PROMPTS) -> list[list[tuple[int, float]]]:
    handles = [llm.submit(prompt, GREEDY) for prompt in prompts]
    while not all(handle.done for handle in handles):
        llm.step()
        llm.check_integrity()
    return [told(handle) for handle in handles]


def alone(llm: LLM, prompts: list[dict[str, Any]] = PROMPTS) -> list[list[tuple[int, float]]]:
    return [together(llm, [prompt])[0] for prompt in prompts]


def worst(one: list[list[tuple[int, float]]], two: list[list[tuple[int, float]]]) -> float:
    """The largest difference of a log-probability; infinite if tokens differ."""
    pairs = [
        pair for left, right in zip(one, two, strict=True) for pair in zip(left, right, strict=True)
    ]
    return max(abs(a[1] - b[1]) if a[0] == b[0] else float("inf") for a, b in pairs)


def longer(prompts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with a few more tokens after it."""
    return [
        {"prompt_token_ids": [*prompt["prompt_token_ids"], 20 + at, 21, 22]}
        for at, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize(
    ("name", "attention"),
    often(
        product(
            ("llama", "qwen3", "mixtral", "qwen3_5", "qwen3_5_vl", "lfm2"), ("pages", "padded")
        ),
        *(("mixtral", "padded"), ("qwen3_5", "pages"), ("qwen3_5_vl", "padded")),
    ),
)
def test_prompts_that_arrive_together_say_what_they_say_alone(
    name: str, attention: Attention, passes: list[int]
) -> None:
    """Also from what was kept of earlier ones on. B1, B32."""
    expected = alone(served(name, attention, prefix_cache=False))
    passes.clear()
    llm = served(name, attention)
    assert worst(together(llm), expected) < BOUND
    assert max(passes) > 2
    passes.clear()
    more = longer(PROMPTS)
    by_itself = alone(served(name, attention, prefix_cache=False), more)
    assert worst(together(llm, more), by_itself) < BOUND
    assert max(passes) > 2
    assert llm.status()["cache"]["reused_tokens"] > 0


def test_rows_keep_no_page_beyond_their_own_tokens(
    passes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A short one beside a long one, further on than all of the long one: all steps run."""
    llm = served()
    far = ids(500, 9)
    together(llm, [far])
    more = {"prompt_token_ids": [*far["prompt_token_ids"], 30, 31]}
    pair = [more, ids(60, 8)]
    expected = alone(served(prefix_cache=False), pair)
    passes.clear()
    assert worst(together(llm, pair), expected) < BOUND
    assert passes == [2]
    assert "failed" not in caplog.text


def test_control_what_is_beyond_a_prompts_end_would_be_noticed(
    passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass in which short prompts see what follows them."""
    expected = alone(served())
    of_arrays = sdpa._of_arrays

    def seen(q: mx.array, *rest: mx.array, mask: Any = None, **how: Any) -> mx.array:
        return of_arrays(q, *rest, mask=None if q.shape[0] > 1 else mask, **how)

    llm = served(prefix_cache=False)
    monkeypatch.setattr(sdpa, "_of_arrays", seen)
    assert worst(together(llm), expected) > BOUND


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Where pieces began and how wide they were, padded as they are for CUDA."""
    monkeypatch.setattr(prefill_pass, "EVEN", True)
    found: list[tuple[int, int]] = []
    reserve = PageTable.reserve_prompts

    def noted(table: PageTable, starts: Any, counts: Any, width: int, again: Any) -> None:
        reserve(table, starts, counts, width, again)
        found.extend((start, width) for start in table.starts or ())

    monkeypatch.setattr(PageTable, "reserve_prompts", noted)
    return found


@pytest.mark.parametrize("arrive", often([alone, together], together))
def test_prompts_of_any_length_are_run_in_one_of_few(
    arrive: Callable[..., list[list[tuple[int, float]]]], ran: list[tuple[int, int]]
) -> None:
    """And say what they say as they are; also in pieces, and after what was kept. B1."""
    prompts = [*PROMPTS, ids(300, 7), ids(301, 7), ids(302, 7), ids(480, 8)]
    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(prefill_pass, "EVEN", False)
        expected, more = (
            alone(served(prefix_cache=False), some) for some in (prompts, longer(prompts))
        )
    llm = served(prefill_chunk=160)
    ran.clear()
    assert worst(arrive(llm, prompts), expected) < BOUND
    assert {0, 256} == {begin for begin, _ in ran}
    assert {16, 64, 128} <= {width for _, width in ran}
    reused = llm.status()["cache"]["reused_tokens"]
    assert worst(arrive(llm, longer(prompts)), more) < BOUND
    assert llm.status()["cache"]["reused_tokens"] > reused + 600
    assert worst(arrive(llm, prompts), expected) < BOUND  # nothing was written over
    assert set(ran) <= set(pieces(512))


@pytest.mark.parametrize("even", [False, True])
def test_pages_for_a_long_prompt_are_made_at_once(
    even: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that there are more waits for the device and copies all. even: with pieces that run
    some tokens again, and are padded, as on CUDA.
    """
    monkeypatch.setattr(prefill_pass, "EVEN", even)
    llm = served(prefill_chunk=64, prefix_cache=False)
    pool = llm._engine.model.pages  # type: ignore[union-attr]
    pool.clear()
    sizes: list[int] = []
    resize = PagePool.resize

    def noted(pool: PagePool, capacity: int) -> None:
        sizes.append(capacity)
        resize(pool, capacity)

    monkeypatch.setattr(PagePool, "resize", noted)
    together(llm, [ids(1200, 3)])
    assert len([size for size in sizes if size]) == 1


def test_pages_that_were_allocated_at_load_are_never_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not while prompts come and are kept, nor after a rest; and they are no more than may be."""
    llm = served(prefill_chunk=64, cache_memory=3 << 20)
    engine = llm._engine
    assert engine is not None
    pool = engine.model.pages
    taken = engine.allocate_pages()
    assert 3 << 20 < taken <= 1.25 * (3 << 20)
    assert taken == pool.nbytes
    resized: list[int] = []
    resize = LayerPages.resize

    def noted(layer: LayerPages, capacity: int) -> None:
        resized.append(capacity)
        resize(layer, capacity)

    monkeypatch.setattr(LayerPages, "resize", noted)
    for seed in range(8):
        together(llm, [ids(200, seed)])
        engine.rest()
    assert llm.status()["cache"]["bytes"] > 0
    assert resized == []
    engine._sharing.new_pages()  # as after a fault of the device
    assert engine.model.pages.least == pool.least > 0
    pool.fit(10)
    assert pool.capacity == max(10, pool.used)
    llm.check_integrity()


@pytest.mark.parametrize(("attention", "waits"), [("pages", False), ("padded", True)])
def test_nobody_waits_for_the_device_where_pages_are_let_go(
    attention: Attention, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of arrays that were not computed yet, all would be there until they are."""
    llm = served(attention=attention, cache_memory=1 << 18)
    calls: list[int] = []
    monkeypatch.setattr(mx, "synchronize", lambda: calls.append(1))
    for seed in range(12):
        together(llm, [ids(200, seed)])
    engine = llm._engine
    assert engine is not None
    assert engine.prefixes is not None
    assert engine.prefixes.budget.evicted > 0
    assert bool(calls) == waits


@pytest.mark.long
def test_all_pieces_are_run_before_anyone_waits(ran: list[tuple[int, int]]) -> None:
    llm = served()
    ran.clear()
    plan_pieces(llm._engine.model, None, lambda _: None)  # type: ignore[union-attr]
    assert ran == pieces(2048)
    assert [width for begin, width in ran if not begin] == [16, 32, 64, *range(128, 2049, 128)]
    assert [width for begin, width in ran if begin == 1792] == [128, 256, 384, 512]


def test_pieces_that_prompts_of_recurrent_layers_share_are_run_before_anyone_waits(
    ran: list[tuple[int, int]],
) -> None:
    llm = served("qwen3_5")
    ran.clear()
    plan_pieces(llm._engine.model, None, lambda _: None)  # type: ignore[union-attr]
    assert ran == [(0, width) for width in (16, 32, 64, 128, 256)]


def test_hidden_states_of_a_row_hold_none_of_those_it_shared_a_pass_with() -> None:
    """They may stay as long as the row, and are counted as its own alone. B62."""
    llm = served(attention="padded")
    model = llm._engine.model  # type: ignore[union-attr]
    rows = [pass_row(model, [20 + at] * 200, 0, 200, new_row(model)) for at in range(8)]
    kept, *others = run_pass_with_hidden(model, rows)
    mx.eval(kept, others, [layer.state for row in rows for layer in row.state])
    del others
    mx.synchronize()
    before, size = mx.get_active_memory(), kept.nbytes
    del kept
    mx.synchronize()
    assert size <= before - mx.get_active_memory() < 2 * size


def test_prompts_share_a_pass_only_where_memory_has_their_states_twice() -> None:
    states = Footprint(0, 0, (LayerFootprint(fixed=1 << 20),), per_token=1, per_score=0, per_row=0)
    jobs = tuple(PendingPrompt(at, 16, 0.0, at) for at in range(4))

    def packed(limit: int) -> int:
        state = State(0.0, prefilling=jobs, memory=Memory(states, limit, 1 << 62))
        return sum(chunk.packed for chunk in schedule(state, Policy(pack=64)).chunks)

    assert packed(8 << 20) == 3
    assert packed(5 << 19) == 2  # in pairs


def test_a_pass_is_planned_as_wide_as_it_is_run(
    ran: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is run again and padding, also where memory ends. B62."""
    widths = list[int]()

    def noted(state: State, policy: Policy) -> Plan:
        widths.extend(job.width for job in (*state.prefilling, *state.waiting))
        return schedule(state, policy)

    monkeypatch.setattr(engine, "schedule", noted)
    for name in ("llama", "qwen3_5"):
        llm = served(name)
        prompts = [ids(250, seed) for seed in (8, 9)]
        together(llm, prompts)
        ran.clear()
        widths.clear()
        together(llm, longer(prompts))
        assert max(width for _, width in ran) == max(widths)
    sizes = Footprint(0, 0, (), per_token=1 << 10, per_score=0, per_row=0)

    def packed(tokens: int, *widths: int) -> int:
        jobs = tuple(
            PendingPrompt(at, 16, 0.0, at, done=250, width=width) for at, width in enumerate(widths)
        )
        state = State(0.0, prefilling=jobs, memory=Memory(sizes, 2 * tokens << 10, 1 << 62))
        return sum(chunk.packed for chunk in schedule(state, Policy(pack=64)).chunks)

    assert packed(4 * 384, 384, 384, 384, 384) == 3
    assert packed(4 * 384 - 1, 384, 384, 384, 384) == 2
    assert packed(2 * 384 - 1, 384, 384, 384, 384) == 0
    # All are as wide as the widest, whoever that is.
    for widths in ((384, 16, 16), (16, 16, 384)):
        assert packed(3 * 384, *widths) == 2
        assert packed(3 * 384 - 1, *widths) == 1


@pytest.mark.parametrize("attention", ["pages", "padded"])
def test_a_pass_that_fails_on_its_way_is_run_again_prompt_by_prompt(
    attention: Attention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is at fault ends; the others are answered. B46."""
    expected = alone(served(attention=attention))
    llm = served(attention=attention, prefix_cache=False)
    assert llm._engine is not None
    last = llm._engine.model.network.layers[-1]
    forward, failed = type(last).__call__, list[int]()

    def refuses(layer: Any, x: mx.array, *rest: Any, **more: Any) -> mx.array:
        if layer is last and x.shape[0] > 1 and x.shape[1] > 1:  # all layers before it have run
            failed.append(x.shape[0])
            raise ValueError("too many")
        return forward(layer, x, *rest, **more)

    monkeypatch.setattr(type(last), "__call__", refuses)
    assert worst(together(llm), expected) < BOUND
    assert failed


def test_control_padding_that_short_prompts_see_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = alone(served(attention="padded"))
    make_mask = PackedKVCache.make_mask

    def seen(layer: PackedKVCache, N: int, *rest: Any, **more: Any) -> mx.array:
        mask = make_mask(layer, N, *rest, **more)
        return mx.ones_like(mask)

    monkeypatch.setattr(PackedKVCache, "make_mask", seen)
    assert worst(together(served(attention="padded", prefix_cache=False)), expected) > BOUND


def test_padded_prompts_that_go_on_from_far_have_a_pass_of_their_own(
    passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they have run would be copied for it, layer by layer. Nor are they planned in one."""
    run, chunks = PromptRunner.run, list[Chunk]()

    def spy(self: PromptRunner, planned: tuple[Chunk, ...], *rest: Any, **more: Any) -> Any:
        chunks.extend(planned)
        return run(self, planned, *rest, **more)

    monkeypatch.setattr(PromptRunner, "run", spy)
    llm = served(attention="padded")
    far = [ids(500, seed) for seed in (9, 10)]
    together(llm, far)
    more = longer(far)
    expected = alone(served(attention="padded", prefix_cache=False), more)
    passes.clear()
    chunks.clear()
    assert worst(together(llm, more), expected) < BOUND
    assert passes == []
    assert chunks
    assert not any(chunk.packed for chunk in chunks)


@pytest.mark.parametrize("attention", ["pages", "padded"])
def test_control_a_recurrent_layer_that_eats_padding_would_be_noticed(
    attention: Attention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of some families do, which share no pass: nobody tells theirs where rows end."""
    expected = alone(served("qwen3_5", attention))
    llm = served("qwen3_5", attention, prefix_cache=False)

    def endless(singles: Sequence[Layer], counts: Sequence[int]) -> Layer:
        return pack(singles, [max(counts)] * len(counts))

    monkeypatch.setattr(prefill_pass, "pack", endless)
    assert worst(together(llm), expected) > BOUND


@pytest.mark.parametrize("name", often(["jamba", "rwkv7", "nemotron_h"], "jamba"))
def test_prompts_of_layers_that_do_not_ask_where_rows_end_share_no_pass(
    name: str, passes: list[int]
) -> None:
    llm = served(name, "padded")
    together(llm)
    assert passes == []


def test_prompts_with_recurrent_layers_have_few_lengths_too(ran: list[tuple[int, int]]) -> None:
    """And no token goes into their state twice."""
    prompts = [*PROMPTS, ids(300, 7), ids(301, 7)]
    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(prefill_pass, "EVEN", False)
        expected, more = (
            alone(served("qwen3_5", prefix_cache=False), some)
            for some in (prompts, longer(prompts))
        )
    llm = served("qwen3_5")
    ran.clear()
    assert worst(together(llm, prompts), expected) < BOUND
    assert ran
    assert {width for _, width in ran} <= {16, 32, 64, 128, 256}
    assert worst(together(llm, longer(prompts)), more) < BOUND


def test_short_prompts_share_a_pass_as_far_as_it_goes() -> None:
    policy = Policy(prefill_chunk=128, pack=64)
    lengths = (10, 30, 60, 20, 100, 5, 5)
    jobs = tuple(PendingPrompt(at, length, 0.0, at) for at, length in enumerate(lengths))
    chunks = schedule(State(0.0, prefilling=jobs), policy).chunks
    # Ten and thirty are two rows of thirty; with sixty they would be 180 tokens.
    assert [chunk.packed for chunk in chunks[:4]] == [False, True, False, True]
    apart = schedule(State(0.0, prefilling=jobs), Policy(prefill_chunk=128)).chunks
    assert not any(chunk.packed for chunk in apart)


def test_padding_costs_no_more_than_the_pass_that_it_saves() -> None:
    """Costs of a pass and of a token: what they say of a short prompt beside a longer one. B61."""
    policy = Policy(8, 512, 16, pack=256)

    def shared(pass_: float, lengths: tuple[int, ...]) -> list[bool]:
        jobs = tuple(PendingPrompt(at, length, 0.0, at) for at, length in enumerate(lengths))
        state = State(0.0, prefilling=jobs, costs=Costs(0.0, 1e-6, pass_))
        return [chunk.packed for chunk in schedule(state, policy).chunks]

    assert shared(1e-5, (100, 90)) == [False, True]  # ten tokens of padding cost ten tokens
    assert shared(1e-5, (100, 89)) == [False, False]
    assert shared(1e-5, (90, 90, 95)) == [False, True, True]  # both of the others are padded
    assert shared(1e-5, (90, 90, 96)) == [False, True, False]
    assert shared(0.0, (50, 50)) == [False, True]


def test_pieces_of_prompts_have_few_lengths() -> None:
    """Whatever time allows; only the last piece of a prompt is as long as it is."""
    job = PendingPrompt(0, 100_000, 0.0, 0)
    pieces = {
        schedule(State(0.0, (Row(1),), prefilling=(job,), costs=Costs(0.01, cost)), Policy())
        .chunks[0]
        .tokens
        for cost in (1e-5 * 1.01**power for power in range(900))
    }
    assert len(pieces) <= 30
    assert {16, 128, 8192} <= pieces


def test_a_restored_prompt_is_given_no_more_than_streams_can_bear(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first tokens look back at all that was restored, which takes its time. B61."""
    costs = Costs(0.03, 1e-4, 0.0, 1e-6)  # a token that looks back at 2,000 takes 2.1 ms
    monkeypatch.setattr(Stopwatch, "costs", lambda *_: costs)
    step, taken = Engine.execute, list[float]()

    def spy(self: Engine, plan: Plan, *rest: Any) -> Any:
        passes = step(self, plan, *rest)
        taken.extend(each.seconds(costs) for each in passes)
        return passes

    one = SamplingParams(max_tokens=1, temperature=0)
    with LLM(str(checkpoint_dir("llama")), attention="pages") as llm:
        far = ids(2000, 3)
        llm.generate(far, one)
        stream = llm.submit(ids(5, 1), SamplingParams(max_tokens=60, ignore_eos=True))
        while not stream.output.token_ids:
            llm.step()
        monkeypatch.setattr(Engine, "execute", spy)
        more = {"prompt_token_ids": far["prompt_token_ids"] + ids(900, 4)["prompt_token_ids"]}
        output = llm.generate(more, one)[0]
    assert output.usage.cached_tokens >= 1990
    assert max(taken) < Policy().token_gap
