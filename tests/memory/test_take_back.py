"""Rows are promised little and take more: who yields when there is none, and how they go on.

A row that yields loses its state, and runs its tokens again when there is room: what it says is
what it would have said. Both where rows are padded and where they have pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, SamplingParams
from bushel.core.options import Attention
from bushel.engine.footprint import footprint
from bushel.engine.plan import Plan
from tests.depth import rarely
from tests.drawings import row as drawn
from tests.families import checkpoint_dir
from tests.llm.request_builders import chat, image, prompt, text

LONG = 400  # tokens that replies are asked for; prompts are of 20
SIXTEEN = [prompt(20, seed) for seed in range(16)]


@contextmanager
def scarce(name: str, attention: Attention, rows: int, length: int | None = None) -> Iterator[LLM]:
    """Memory for so many rows at their full length, and not one more."""
    path = str(checkpoint_dir(name))
    with LLM(path, attention=attention) as llm:
        sizes = footprint(llm._engine.model)  # type: ignore[union-attr]
    limit = sizes.peak(rows, length or 20 + LONG, 16)
    with LLM(path, attention=attention, memory_limit=limit, headroom=0) as llm:
        yield llm


def asked(tokens: int, **more: Any) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, **more)


def alone(llm: LLM, requests: list[Any], params: list[SamplingParams]) -> list[list[int]]:
    pairs = zip(requests, params, strict=True)
    return [llm.generate(*pair)[0].token_ids for pair in pairs]


ways = pytest.mark.parametrize("attention", rarely(["padded", "pages"], "pages".__eq__))


@ways
def test_many_who_ask_for_much_and_use_little_run_at_once(attention: Attention) -> None:
    """Sixteen ask for all that three could have, and stop after twenty tokens. B63."""
    with LLM(str(checkpoint_dir("llama"))) as free:
        ends = [output.token_ids[19] for output in free.generate(SIXTEEN, asked(20))]
    with scarce("llama", attention, 3, 2020) as llm:
        params = [asked(2000, stop_token_ids=[end]) for end in ends]
        outputs = llm.generate(SIXTEEN, params)
        assert {output.finish_reason for output in outputs} == {"stop"}
        assert max(len(output.token_ids) for output in outputs) <= 20
        assert llm.status()["max_decode_batch"] >= 12
        assert llm.status()["preemptions"] == 0


@ways
@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "qwen3_5"])
def test_many_who_use_all_of_it_yield_and_say_the_same(name: str, attention: Attention) -> None:
    """The youngest yield and come back; all finish, and the limit holds. B63."""
    with LLM(str(checkpoint_dir(name))) as free:
        expected = alone(free, SIXTEEN, [asked(LONG)] * 16)
    with scarce(name, attention, 3) as llm:
        weights = footprint(llm._engine.model).weights  # type: ignore[union-attr]
        mx.synchronize()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        outputs = llm.generate(SIXTEEN, asked(LONG))
        peak = weights + mx.get_peak_memory() - before
        status = llm.status()
        llm._engine.check_integrity()  # type: ignore[union-attr]
    assert [output.error for output in outputs] == [None] * 16
    assert [output.token_ids for output in outputs] == expected
    assert status["preemptions"] > 0
    assert status["max_decode_batch"] > 3
    assert peak <= status["memory"]["limit_bytes"]


LIST = {"type": "array", "items": {"type": "integer"}, "minItems": 80}


def mixed(name: str, tokens: int) -> list[tuple[Any, SamplingParams]]:
    """Rows that are held to a grammar, draw by a seed, are penalised, and look at an image."""
    kinds = [
        ({**prompt(20), "shape": {"json_schema": LIST}}, SamplingParams(temperature=0)),
        (prompt(20), SamplingParams(temperature=1.2, seed=3, ignore_eos=True)),
        (prompt(20), SamplingParams(temperature=0.8, repetition_penalty=1.3, ignore_eos=True)),
    ]
    if name != "llama":
        seen = chat(text("what?"), image(drawn("circle", "red", 2, (112, 56))))
        kinds.append((seen, SamplingParams(temperature=0, ignore_eos=True)))
    return [
        (request, replace(params, max_tokens=tokens, seed=params.seed or 7))
        for request, params in kinds
    ]


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        pytest.param("llama", "pages", marks=pytest.mark.long),
        pytest.param("llama", "padded", marks=pytest.mark.long),
        pytest.param("qwen2_5_vl", "pages", marks=pytest.mark.long),
        pytest.param("qwen2_5_vl", "padded", marks=pytest.mark.long),
    ],
)
def test_rows_with_a_grammar_a_seed_and_an_image_resume_as_they_were(
    name: str, attention: Attention
) -> None:
    """What they are held to, draw and look at goes on where it was. B63."""
    kinds = mixed(name, LONG)
    pairs = kinds * 3
    requests, params = [request for request, _ in pairs], [params for _, params in pairs]
    with LLM(str(checkpoint_dir(name))) as free:
        expected = alone(free, requests[: len(kinds)], params[: len(kinds)]) * 3
    yielded: set[int] = set()
    with scarce(name, attention, 3, 80 + LONG) as llm:
        handles = [llm.submit(*pair) for pair in pairs]
        while not all(handle.done for handle in handles):
            llm.step()
            rows = llm._engine._queue.sequences()  # type: ignore[union-attr]
            yielded |= {int(row.request.id[4:]) % len(kinds) for row in rows if row.row.yields}
        assert llm.status()["preemptions"] > 0
    assert [handle.output.token_ids for handle in handles] == expected
    assert yielded >= ({0, 1, len(kinds) - 1} if attention == "pages" else {len(kinds) - 1})


@ways
def test_whoever_yielded_comes_back_before_anyone_new(attention: Attention) -> None:
    """One row always runs to its end, and nobody is overtaken for ever. B63."""
    with scarce("llama", attention, 2) as llm:
        handles = [llm.submit(request, asked(LONG)) for request in SIXTEEN[:4]]
        ended: list[int] = []
        new = 4
        while len(ended) < 4:
            llm.step()
            if new < 40 and llm.status()["waiting"] < 2:
                llm.submit(prompt(20, new), asked(8))
                new += 1
            ended += [at for at, handle in enumerate(handles) if handle.done and at not in ended]
        assert llm.status()["preemptions"] > 0
        assert ended[0] == 0


@ways
def test_what_is_kept_gives_way_to_a_reply_that_grows(attention: Attention) -> None:
    """Prompts of before had all the memory; a reply that nobody else waits for takes it. B63."""
    with scarce("llama", attention, 2, 900) as llm:
        engine = llm._engine
        assert engine is not None
        assert engine.prefixes is not None
        for seed in range(12):
            llm.generate(prompt(200, 50 + seed), asked(1))
        kept, limit = engine.prefixes.budget.bytes, llm.status()["memory"]["limit_bytes"]
        handle = llm.submit(prompt(20), asked(860))
        while not handle.done:
            llm.step()
            memory = engine._promised()
            assert memory is not None
            assert memory.peak(16) + engine.prefixes.budget.bytes <= limit
        assert engine.prefixes.budget.bytes < kept


@ways
def test_what_a_row_left_in_the_tree_is_not_computed_again(attention: Attention) -> None:
    """It stays for as long as there is room, and the row goes on from there. B63."""
    with LLM(str(checkpoint_dir("llama")), attention=attention) as llm:
        engine = llm._engine
        assert engine is not None
        assert engine.prefixes is not None
        restored: list[int] = []
        restore = engine.prefixes.restore

        def counted(reuse: Any, key: Any, length: int) -> Any:
            restored.append(reuse.position)
            return restore(reuse, key, length)

        engine.prefixes.restore = counted  # type: ignore[method-assign]
        handles = [llm.submit(request, asked(60)) for request in SIXTEEN[:2]]
        while len(handles[1].output.token_ids) < 30:
            llm.step()
        youngest = engine._batch.sequences[-1].row.id
        engine.execute(Plan(preempt=(youngest,), drop=(youngest,), decode=True))
        for handle in handles:
            while not handle.done:
                llm.step()
        assert restored[-1] >= 20 + 28
        got = [handle.output.token_ids for handle in handles]
        assert got == alone(llm, SIXTEEN[:2], [asked(60)] * 2)
