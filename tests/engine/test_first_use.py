"""Samplers are tried before anybody waits for them, and a step takes few operations (B61)."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, get_args

import mlx.core as mx
import pytest

from bushel import LLM, SamplingParams
from bushel.core import GenerationDefaults
from bushel.core.params import resolve
from bushel.engine.sampling import draw, first_use, penalties, sampler, vectorised
from bushel.engine.sampling.first_use import SAMPLERS, compile_samplers
from bushel.engine.sampling.sampler import Sampler
from tests.families import checkpoint_dir

VOCAB = 1 << 15


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each function was called by which tokens are chosen."""
    seen: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            seen[name] += 1
            return function(*args)

        return call

    for route, function in vectorised._DRAW.items():
        monkeypatch.setitem(vectorised._DRAW, route, counted(route, function))
    monkeypatch.setattr(vectorised, "_hold", counted("hold", vectorised._hold))
    monkeypatch.setattr(sampler, "logprobs_of", counted("logprobs", sampler.logprobs_of))
    apply = penalties.Penalties.apply

    def penalised(self: penalties.Penalties, *args: Any) -> Any:
        seen["penalties"] += bool(self.rows)
        return apply(self, *args)

    monkeypatch.setattr(penalties.Penalties, "apply", penalised)
    return seen


def test_every_way_of_choosing_is_tried_at_load(calls: Counter[str]) -> None:
    with LLM(str(checkpoint_dir("llama"))) as llm:
        engine: Any = llm._engine
        words: list[str] = []
        assert compile_samplers(engine.model, words.append) > 0
    assert {*get_args(draw.Route), "hold", "logprobs", "penalties"} <= {*calls}


def test_what_is_left_when_a_row_goes_is_tried_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    leave = Sampler.leave

    def noted(self: Sampler, keep: Any) -> None:
        leave(self, keep)
        left.append(len(self.rows))

    monkeypatch.setattr(Sampler, "leave", noted)
    with LLM(str(checkpoint_dir("llama"))) as llm:
        engine: Any = llm._engine
        compile_samplers(engine.model, print)
    assert left == [1] * len(SAMPLERS) + [len(SAMPLERS) - 1]


def test_every_way_of_choosing_is_tried_along_drafts_where_there_are_any(
    calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without them nobody waits for that."""
    widths: list[int] = []
    own = Sampler.sample_along

    def along(self: Sampler, logits: mx.array, *args: Any) -> Any:
        widths.append(logits.shape[1])
        calls.clear()
        sampled = own(self, logits, *args)
        assert {*get_args(draw.Route), "logprobs"} <= {*calls}
        return sampled

    monkeypatch.setattr(Sampler, "sample_along", along)
    with LLM(str(checkpoint_dir("llama"))) as llm:
        engine: Any = llm._engine
        compile_samplers(engine.model, print)
        assert not widths
        compile_samplers(engine.model, print, drafts=True)
    assert set(widths) == {3}


def test_what_takes_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "_SLOW", 0.0)
    with LLM(str(checkpoint_dir("llama"))) as llm:
        engine: Any = llm._engine
        words: list[str] = []
        compile_samplers(engine.model, words.append)
    assert len(words) == 2 * len(SAMPLERS) + 1
    assert re.fullmatch(r"compiled the sampler for greedy in \d+\.\d s", words[0])


# -- operations of a step, which cost a GPU's host several microseconds each -------------------


def operations(rows: list[Mapping[str, Any]]) -> int:
    """That choosing the tokens of a step takes, once rows have said something."""
    chooser, count = Sampler(VOCAB), len(rows)
    for at, settings in enumerate(rows):
        params = SamplingParams(**{"temperature": 0.8, **settings}, max_tokens=9, seed=at)
        chooser.join(
            resolve(params, GenerationDefaults(), vocab=VOCAB, end_ids=frozenset()), [1, 2], [5]
        )
    logits, inputs = mx.zeros((count, 1, VOCAB)), mx.array([[5]] * count)
    mx.eval(logits, inputs)
    for step in (1, 2):
        sampled = chooser.sample(logits, inputs, [step] * count, [step] * count)
        page = io.StringIO()
        mx.export_to_dot(page, *sampled.arrays())
        mx.eval(sampled.arrays())
    return page.getvalue().count("shape=rectangle")


MIXED = [
    {"top_p": 0.9, "top_k": 20},
    {"top_p": 0.95},
    {"min_p": 0.05},
    {"top_k": 40, "repetition_penalty": 1.1},
]
CEILINGS: dict[str, tuple[list[Mapping[str, Any]], int]] = {
    "greedy": ([{"temperature": 0.0}] * 8, 2),
    "temperature": ([{}] * 8, 26),
    "min_p": ([{"min_p": 0.05}] * 8, 26),
    "top_p": ([{"top_p": 0.9}] * 8, 41),
    "top_k": ([{"top_k": 20, "top_p": 0.9}] * 8, 30),
    "mixed": ([*MIXED, *MIXED], 84),
}


@pytest.mark.parametrize("kind", CEILINGS)
def test_a_step_takes_no_more_operations_than_it_did(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU's rows are grouped."""
    monkeypatch.setattr(vectorised, "ON_CPU", False)
    rows, most = CEILINGS[kind]
    assert operations(rows) <= most


def test_control_rows_in_more_groups_take_more_of_them() -> None:
    assert operations(MIXED) > CEILINGS["mixed"][1]
