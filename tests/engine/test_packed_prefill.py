"""Prompts that share a forward pass are answered as they are alone (B1, B61)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, Handle, SamplingParams
from bushel.cache.paged import sdpa
from bushel.engine import prefill_pass
from bushel.engine.plan import PendingPrompt, Policy, State
from bushel.engine.prefill_pass import PassRow
from bushel.engine.scheduler import even, next_even, schedule
from bushel.models import Model
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


def paged(name: str = "llama", **options: Any) -> LLM:
    return LLM(str(checkpoint_dir(name)), attention="pages", max_batch=8, **options)


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


@pytest.mark.parametrize("even_lengths", [False, True], ids=["any length", "few lengths"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "mixtral"])
def test_prompts_that_arrive_together_say_what_they_say_alone(
    name: str, even_lengths: bool, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from what was kept of earlier ones on. B1, B32."""
    expected = alone(paged(name, prefix_cache=False))
    passes.clear()
    monkeypatch.setattr(prefill_pass, "EVEN", even_lengths)
    llm = paged(name)
    assert worst(together(llm), expected) < BOUND
    assert max(passes) > 2
    longer = [
        {"prompt_token_ids": [*p["prompt_token_ids"], 20 + n, 21, 22]}
        for n, p in enumerate(PROMPTS)
    ]
    passes.clear()
    assert worst(together(llm, longer), alone(paged(name, prefix_cache=False), longer)) < BOUND
    assert max(passes) > 2
    assert llm.status()["cache"]["reused_tokens"] > 0


def test_rows_keep_no_page_beyond_their_own_tokens(
    passes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A short one beside a long one, further on than all of the long one: all steps run."""
    llm = paged()
    far = ids(500, 9)
    together(llm, [far])
    more = {"prompt_token_ids": [*far["prompt_token_ids"], 30, 31]}
    pair = [more, ids(200, 8)]
    expected = alone(paged(prefix_cache=False), pair)
    passes.clear()
    assert worst(together(llm, pair), expected) < BOUND
    assert passes == [2]
    assert "failed" not in caplog.text


def test_control_what_is_beyond_a_prompts_end_would_be_noticed(
    passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass in which short prompts see what follows them."""
    expected = alone(paged())
    of_arrays = sdpa._of_arrays

    def seen(q: mx.array, *rest: mx.array, mask: Any = None, **how: Any) -> mx.array:
        return of_arrays(q, *rest, mask=None if q.shape[0] > 1 else mask, **how)

    llm = paged(prefix_cache=False)
    monkeypatch.setattr(sdpa, "_of_arrays", seen)
    assert worst(together(llm), expected) > BOUND


def test_a_pass_that_fails_is_run_again_prompt_by_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever is at fault ends; the others are answered. B46."""
    expected = alone(paged())
    run_pass, llm = prefill_pass.run_pass, paged(prefix_cache=False)

    def refuses(model: Model, rows: Sequence[PassRow]) -> mx.array:
        if len(rows) > 1:
            raise ValueError("too many")
        return run_pass(model, rows)

    monkeypatch.setattr(prefill_pass, "run_pass", refuses)
    assert worst(together(llm), expected) < BOUND


def test_prompts_with_recurrent_layers_do_not_share_a_pass(passes: list[int]) -> None:
    llm = paged("qwen3_5")
    assert not llm._engine.model.shares_passes  # type: ignore[union-attr]
    together(llm)
    assert passes == []


def test_short_prompts_share_a_pass_as_far_as_it_goes() -> None:
    policy = Policy(prefill_chunk=128, pack=64)
    lengths = (10, 30, 60, 20, 100, 5, 5)
    jobs = tuple(PendingPrompt(at, length, 0.0, at) for at, length in enumerate(lengths))
    chunks = schedule(State(0.0, prefilling=jobs), policy).chunks
    # Ten and thirty are two rows of thirty; with sixty they would be 180 tokens.
    assert [chunk.packed for chunk in chunks[:4]] == [False, True, False, True]
    apart = schedule(State(0.0, prefilling=jobs), Policy(prefill_chunk=128)).chunks
    assert not any(chunk.packed for chunk in apart)


def test_chunks_have_few_lengths() -> None:
    for tokens in range(1, 5000):
        assert even(tokens) <= tokens <= next_even(tokens)
        assert even(next_even(tokens)) == next_even(tokens)
    assert len({next_even(tokens) for tokens in range(1, 2049)}) <= 24
