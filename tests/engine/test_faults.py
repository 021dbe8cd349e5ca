"""A fault stays with its row: everybody else's tokens are what they would have been (B48, B49)."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import pytest

from bushel import LLM, Output, SamplingParams
from bushel.cache.paged.layer_pages import LayerPages
from bushel.cache.prefix import PrefixCache
from bushel.core.options import Attention
from bushel.engine import prompt_runner
from bushel.engine.decode_batch import DecodeBatch
from bushel.engine.plan import Costs
from bushel.engine.prefilled_row import PrefilledRow
from bushel.engine.sampling.sampler import Sampled, Sampler
from bushel.engine.step_costs import Stopwatch
from bushel.models.vision.vision_model import VisionModel
from bushel.text.detokenizer import OutputProcessor
from tests.depth import often
from tests.engine.mixed_requests import GUILTY_SEED, GUILTY_STOP, guilty, innocent
from tests.families import checkpoint_dir
from tests.llm.request_builders import assert_same, greedy, prompt

MOST_STEPS = 100  # of an engine that gets on; idle ones cost nothing
FAMILY = "qwen3_5_vl"  # recurrent and attention layers, explicit positions, images


@pytest.fixture
def llm() -> Iterator[LLM]:
    with LLM(str(checkpoint_dir(FAMILY)), prefill_chunk=32) as llm:
        yield llm


@pytest.fixture(scope="module")
def clean() -> list[list[int]]:
    """What the innocent requests answer when nothing goes wrong."""
    with LLM(str(checkpoint_dir(FAMILY)), prefill_chunk=32) as llm:
        return [llm.generate(*pair)[0].token_ids for pair in innocent()]


def serve(llm: LLM, culprit: tuple[dict[str, Any], SamplingParams]) -> tuple[list[Output], Output]:
    """Innocent requests around a guilty one, all in one batch."""
    pairs = innocent()
    pairs.insert(2, culprit)
    outs = llm.generate([request for request, _ in pairs], [params for _, params in pairs])
    return outs[:2] + outs[3:], outs[2]


def check(outs: tuple[list[Output], Output], clean: list[list[int]], message: str) -> None:
    others, culprit = outs
    assert culprit.finish_reason == "error"
    assert message in (culprit.error or "")
    assert [out.error for out in others] == [None] * len(others)
    assert [out.token_ids for out in others] == clean


def raising(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Any) -> None:
    """Make a method raise when a predicate over its arguments says so."""
    original = getattr(owner, name)

    def planted(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            raise RuntimeError(f"planted in {name}")
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, planted)


def is_guilty(prompt: Any) -> bool:
    return len(prompt.ids) == len(guilty()[0]["prompt_token_ids"])


def test_nothing_planted_nothing_fails(llm: LLM, clean: list[list[int]]) -> None:
    """The control: the guilty request is harmless by itself."""
    others, culprit = serve(llm, guilty())
    assert culprit.error is None
    assert [out.token_ids for out in others] == clean
    assert llm.status()["max_decode_batch"] == len(clean) + 1


def test_embedding_that_raises_ends_only_its_request(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, VisionModel, "embed", lambda _, prepared, *__: is_guilty(prepared))
    check(serve(llm, guilty()), clean, "planted in embed")


def test_prefill_that_raises_midway_ends_only_its_request(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    second_chunk = lambda _, prompt, start, *__: is_guilty(prompt) and start > 0  # noqa: E731
    raising(monkeypatch, VisionModel, "prefill", second_chunk)
    check(serve(llm, guilty()), clean, "planted in prefill")


def unlaunchable() -> mx.array:
    """What MLX builds, and refuses as soon as somebody launches it."""
    square = mx.zeros((32, 32), mx.float16)
    return mx.block_masked_mm(square, square, 32, mx.ones((1, 1), mx.bool_))


@pytest.mark.parametrize(("rows", "behind"), [(0, 1), (1, 0), (1, 1)])
def test_a_prompt_that_cannot_be_launched_ends_alone(
    rows: int, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it later, be it rows that run beside it or the prompt behind it."""
    greedy = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
    bad, good = prompt(19, 5), [prompt(9, seed) for seed in range(rows + behind)]
    original = prompt_runner.run_together

    def planted(work: Any) -> list[mx.array]:
        states: list[mx.array] = original(work)
        culprit = any(len(job.prompt.ids) == 19 for job, _ in work)
        return [*states, unlaunchable()] if culprit else states

    with LLM(str(checkpoint_dir("llama")), prefix_cache=False) as llm:
        right = [llm.generate(each, greedy)[0] for each in good]
        monkeypatch.setattr(prompt_runner, "run_together", planted)
        handles = [llm.submit(each, greedy) for each in good[:rows]]
        while not all(handle.output.token_ids for handle in handles):
            llm.step()
        culprit = llm.submit(bad, greedy)
        handles += [llm.submit(each, greedy) for each in good[rows:]]
        while not all(handle.done for handle in handles):
            llm.step()
            llm.check_integrity()
        assert "BlockMaskedMM" in (culprit.output.error or "")
        for handle, expected in zip(handles, right, strict=True):
            assert_same(handle.output, expected)


@contextmanager
def unlaunchable_embeddings(llm: LLM, those: Callable[[mx.array], bool]) -> Iterator[None]:
    """All that such tokens leave behind is made of what MLX refuses to launch."""
    assert llm._engine is not None
    embed = llm._engine.model.network.model.embed_tokens
    original = type(embed).__call__

    def planted(self: Any, tokens: mx.array) -> mx.array:
        hidden = original(self, tokens)
        if self is embed and those(tokens):
            hidden = hidden + unlaunchable().sum().astype(hidden.dtype) * 0
        return hidden

    with patch.object(type(embed), "__call__", planted):
        yield


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("attention", ["padded", "pages"])
def test_what_a_prompt_that_cannot_be_launched_wrote_harms_nobody(
    attention: Attention, others: int
) -> None:
    """Alone or in a pass with others, beside a stream: it ends, the others and later ones are
    answered, and nothing is kept of what was not computed. B49, B65.
    """
    greedy = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    bad, good = prompt(19, 5), [prompt(length, length) for length in (7, 9, 12)]
    begins = bad["prompt_token_ids"][:6]

    def guilty(tokens: mx.array) -> bool:
        rows: Any = tokens.tolist()
        return tokens.shape[1] > 1 and any(row[:6] == begins for row in rows)

    with LLM(str(checkpoint_dir("llama")), attention=attention) as llm:
        right = [llm.generate(each, greedy)[0] for each in (*good, bad)]
        llm.clear_cache()
        with unlaunchable_embeddings(llm, guilty):
            handles = [llm.submit(good[0], greedy)]
            while not handles[0].output.token_ids:
                llm.step()
            culprit = llm.submit(bad, greedy)
            handles += [llm.submit(each, greedy) for each in good[1 : 1 + others]]
            for _ in range(MOST_STEPS):
                llm.step()
                llm.check_integrity()
            assert all(handle.done for handle in (culprit, *handles))
        assert "BlockMaskedMM" in (culprit.output.error or "")
        for handle, expected in zip(handles, right, strict=False):
            assert_same(handle.output, expected)
        for each, expected in zip((*good, bad), right, strict=True):
            assert_same(llm.generate(each, greedy)[0], expected)
        assert llm.status()["lane"] == "batch"


WHERE = {"second layer": 1, "last layer": -1, "first layer's values": 0, "last layer's values": -1}


@pytest.mark.parametrize("speculate", ["off", "lookup"])
@pytest.mark.parametrize("what", WHERE)
def test_pages_that_cannot_grow_once_fail_nobody_later(
    what: str, speculate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short and long requests are answered as before, in pages that all layers have."""
    greedy = SamplingParams(max_tokens=9, temperature=0, ignore_eos=True)
    long, short = prompt(900), [prompt(20, seed) for seed in range(3)]
    resize, evaluate = LayerPages.resize, mx.eval
    planted: list[str] = []

    def fail() -> None:
        planted.append(what)
        raise RuntimeError("[malloc] Unable to allocate 123456789 bytes.")

    def full(layer: LayerPages, capacity: int) -> None:
        layers = llm._engine.model.pages.layers  # type: ignore[union-attr]
        grows = layer.written and capacity > layer.capacity > 0
        if planted or not grows or layer is not layers[WHERE[what]]:
            resize(layer, capacity)
        elif "values" not in what:
            fail()
        else:
            left = iter([evaluate, evaluate, lambda *_: fail()])
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(mx, "eval", lambda *arrays: next(left)(*arrays))
                resize(layer, capacity)

    path = str(checkpoint_dir("llama"))
    with LLM(path, attention="pages", speculate=speculate, prefix_cache=False) as llm:
        right = [llm.generate(each, greedy)[0] for each in short]
        monkeypatch.setattr(LayerPages, "resize", full)
        assert "malloc" in (llm.generate(long, greedy)[0].error or "")
        assert planted
        llm.check_integrity()
        for each, expected in zip(short, right, strict=True):
            assert_same(llm.generate(each, greedy)[0], expected)
        assert llm.generate(long, greedy)[0].error is None
        llm.check_integrity()


@pytest.mark.parametrize("attention", ["padded", "pages"])
def test_batched_steps_that_cannot_be_launched_are_served_one_by_one(attention: Attention) -> None:
    """And whoever comes later is answered as well. B49."""
    greedy = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    asked = [prompt(length, length) for length in (7, 9, 12)]
    path = str(checkpoint_dir("llama"))
    with LLM(path, attention=attention, speculate="off") as llm:
        right = [llm.generate(each, greedy)[0] for each in asked]
        with unlaunchable_embeddings(llm, lambda tokens: tokens.shape[0] > 1):
            for output, expected in zip(llm.generate(asked, greedy), right, strict=True):
                assert_same(output, expected)
        assert llm.status()["lane"] == "single"
        assert_same(llm.generate(asked[0], greedy)[0], right[0])


@pytest.mark.parametrize("attention", ["padded", "pages"])
def test_a_prompt_is_not_blamed_for_the_step_beside_it(
    attention: Attention, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batched step cannot be launched, in the step in which the prompt runs. B49."""
    monkeypatch.setattr(Stopwatch, "costs", lambda *_: Costs(0.01, 0.0))  # prompts beside steps
    asked = [(prompt(length, length), greedy(12)) for length in (7, 9, 12)]
    with LLM(str(checkpoint_dir("llama")), attention=attention, speculate="off") as llm:
        right = [llm.generate(*each)[0] for each in asked]
        llm.clear_cache()
        left = 0

        def guilty(tokens: mx.array) -> bool:
            nonlocal left
            fails = left > 0 and tokens.shape[1] == 1 < tokens.shape[0]
            left -= fails
            return fails

        with unlaunchable_embeddings(llm, guilty):
            handles = [llm.submit(*each) for each in asked[:2]]
            while not all(len(handle.output.token_ids) > 2 for handle in handles):
                llm.step()
            left = 1
            handles.append(llm.submit(*asked[2]))
            while not all(handle.done for handle in handles):
                llm.step()
                llm.check_integrity()
        assert not left
        for handle, expected in zip(handles, right, strict=True):
            assert_same(handle.output, expected)


def test_a_request_that_cannot_be_taken_in_holds_no_slot(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(PrefixCache, "ahead", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        llm.submit(prompt(9, 1), greedy(4))
    monkeypatch.undo()
    assert llm._engine is not None
    assert llm._engine.idle
    assert llm.generate(prompt(9, 1), greedy(4))[0].error is None


def test_the_control_is_refused_when_it_is_launched() -> None:
    never = unlaunchable()
    with pytest.raises(RuntimeError, match="BlockMaskedMM"):
        mx.async_eval(never)


def test_sampling_that_raises_for_one_row_ends_only_that_row(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    has_culprit = lambda sampler, *_: any(  # noqa: E731
        row.seed == GUILTY_SEED for row in sampler.rows
    )
    raising(monkeypatch, Sampler, "sample", has_culprit)
    outs = serve(llm, guilty())
    check(outs, clean, "planted in sample")
    assert llm.status()["lane"] == "batch"


def test_sampling_that_starts_to_raise_late_leaves_the_tokens_before_it(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(sampler: Sampler, _: Any, __: Any, indices: list[int], ___: Any) -> bool:
        rows = zip(sampler.rows, indices, strict=True)
        return any(row.seed == GUILTY_SEED and index >= 4 for row, index in rows)

    expected = llm.generate(*guilty())[0].token_ids
    raising(monkeypatch, Sampler, "sample", late)
    outs = serve(llm, guilty())
    check(outs, clean, "planted in sample")
    assert outs[1].token_ids == expected[:4]


def test_stop_handling_that_raises_ends_only_its_row(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(
        monkeypatch, OutputProcessor, "add", lambda reply, *_: GUILTY_STOP in reply._stops._stops
    )
    check(serve(llm, guilty()), clean, "planted in add")


def test_one_failing_read_costs_nobody_a_token(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device fails once, under a step that holds every row: all are rebuilt. B49."""
    reads = iter(range(1000))
    full = len(clean)
    raising(
        monkeypatch,
        Sampled,
        "read",
        lambda sampled, rows: len(rows) == full and next(reads) == 2,
    )
    pairs = innocent()
    outs = llm.generate([request for request, _ in pairs], [params for _, params in pairs])
    assert [out.error for out in outs] == [None] * len(outs)
    assert [out.token_ids for out in outs] == clean
    assert next(reads) > 3  # the fault was met
    assert llm.status()["lane"] == "batch"


@pytest.mark.long
def test_a_long_reply_outlives_the_faults_of_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fails the step that it is in, long after the one before. B49."""
    long = SamplingParams(max_tokens=640, temperature=0, ignore_eos=True)
    original = Sampled.read

    def planted(sampled: Sampled, rows: Any) -> Any:
        if len(rows) > 1:
            raise RuntimeError("planted in read")
        return original(sampled, rows)

    with LLM(str(checkpoint_dir("llama")), speculate="off") as llm:
        [right] = llm.generate(prompt(9, 1), long)
        handle, joint = llm.submit(prompt(9, 1), long), llm._own_engine()._recovery
        for fault in range(1, 10):
            while len(handle.output.token_ids) < 66 * fault and not handle.done:
                llm.step()
            other = llm.submit(prompt(5, 2), SamplingParams(max_tokens=3, temperature=0))
            with monkeypatch.context() as patch:
                patch.setattr(Sampled, "read", planted)
                while not handle.done and not joint._joint_faults:
                    llm.step()
            while not other.done:
                llm.step()
        while not handle.done:
            llm.step()
        assert handle.output.error is None
        assert_same(handle.output, right)


def test_prompt_logprobs_come_once_although_the_first_step_fails(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows rebuilt before their first token run their prompts again, which were told (B49)."""
    prompts = [prompt(length, length) for length in (12, 40)]  # one chunk, and two
    params = SamplingParams(temperature=0, max_tokens=4, prompt_logprobs=1, n=2)
    clean = llm.generate(prompts, params)
    assert [len(out.prompt_logprobs or ()) for out in clean] == [12, 40]
    reads = iter(range(1000))
    raising(monkeypatch, Sampled, "read", lambda *_: next(reads) == 0)
    outs = llm.generate(prompts, params)
    assert next(reads) > 1  # the fault was met
    for out, expected in zip(outs, clean, strict=True):
        assert_same(out, expected)


def test_a_failing_read_of_the_last_token_loses_nobody(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows at their limit have left the batch by then; they are rebuilt as well."""
    [request, params] = innocent()[0]
    reads = iter(range(1000))
    raising(monkeypatch, Sampled, "read", lambda *_: next(reads) == params.max_tokens - 1)
    [output] = llm.generate([request], params)
    assert output.error is None
    assert output.token_ids == clean[0]
    assert next(reads) == params.max_tokens + 1  # the fault was met, and the token read again


def test_a_row_that_cannot_join_ends_alone(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch may be half changed by then, so the others are rebuilt. B49."""
    raising(monkeypatch, Sampler, "join", lambda _, row, *__: row.seed == GUILTY_SEED)
    check(serve(llm, guilty()), clean, "planted in join")


@pytest.mark.parametrize("guilty_at", often([0, 2, 4], 2))
def test_of_rows_that_join_together_the_one_that_cannot_ends_alone(
    guilty_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before it may have joined, those after it have not: all but it go on. B49."""
    asked = [prompt(9, seed) for seed in range(5)]
    params = [SamplingParams(max_tokens=6, seed=seed, ignore_eos=True) for seed in range(5)]
    with LLM(str(checkpoint_dir("llama")), attention="pages", prefix_cache=False) as llm:
        expected = [llm.generate(*pair)[0].token_ids for pair in zip(asked, params, strict=True)]
        together: list[int] = []
        join = DecodeBatch.join

        def noted(batch: DecodeBatch, rows: Collection[PrefilledRow]) -> None:
            together.append(len(rows))
            join(batch, rows)

        monkeypatch.setattr(DecodeBatch, "join", noted)
        raising(monkeypatch, Sampler, "join", lambda _, row, *__: row.seed == guilty_at)
        outs = llm.generate(asked, params)
        assert llm.status()["lane"] == "batch"
        llm.check_integrity()
    assert max(together) == 5
    assert "planted in join" in (outs.pop(guilty_at).error or "")
    del expected[guilty_at]
    assert [out.error for out in outs] == [None] * 4
    assert [out.token_ids for out in outs] == expected


def test_a_leave_that_fails_once_costs_nobody_a_token(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leaves has ended already; those who stay are rebuilt. B49."""
    leaves = iter(range(1000))
    raising(monkeypatch, Sampler, "leave", lambda *_: next(leaves) == 0)
    pairs = innocent()
    outs = llm.generate([request for request, _ in pairs], [params for _, params in pairs])
    assert [out.error for out in outs] == [None] * len(outs)
    assert [out.token_ids for out in outs] == clean
    assert next(leaves) > 1  # the fault was met
    assert llm.status()["lane"] == "batch"


def test_a_model_that_cannot_batch_is_served_one_row_at_a_time(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising(monkeypatch, VisionModel, "forward", lambda _, tokens, *__: tokens.shape[0] > 1)
    pairs = innocent()
    outs = llm.generate([request for request, _ in pairs], [params for _, params in pairs])
    assert [out.error for out in outs] == [None] * len(outs)
    assert [out.token_ids for out in outs] == clean
    status = llm.status()
    assert status["lane"] == "single"
    assert status["max_decode_batch"] == 1
    assert "planted" in status["lane_reason"]


def test_a_model_that_always_fails_ends_every_request_and_stays_usable(
    llm: LLM, clean: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        raising(patch, VisionModel, "forward", lambda *_: True)
        pairs = innocent()
        outs = llm.generate([request for request, _ in pairs], [params for _, params in pairs])
        assert [out.finish_reason for out in outs] == ["error"] * len(outs)
    again = [llm.generate(*pair)[0].token_ids for pair in innocent()]
    assert again == clean
