"""MLX keeps freed memory for the next step, and nobody empties that while requests run."""

import sys

import mlx.core as mx
import pytest

from bushel import LLM, ModelError, SamplingParams
from bushel.engine.engine import Engine
from bushel.models import load
from tests.depth import often
from tests.families import checkpoint_dir
from tests.llm.request_builders import chat, greedy, prompt

# mlx-lm's own loop empties it at every 256th token.
LONG = SamplingParams(max_tokens=300, temperature=0, ignore_eos=True)


class Clears:
    """How often the allocator's cache has been emptied."""

    def __init__(self) -> None:
        self.count = 0

    def since(self) -> int:
        """And starts again."""
        count, self.count = self.count, 0
        return count


@pytest.fixture
def clears(monkeypatch: pytest.MonkeyPatch) -> Clears:
    seen, clear = Clears(), mx.clear_cache

    def counted() -> None:
        seen.count += 1
        clear()

    monkeypatch.setattr(mx, "clear_cache", counted)
    return seen


@pytest.mark.parametrize("name", often(["llama", "qwen3_5"], "qwen3_5"))
def test_a_single_reply_never_waits_for_the_allocator_to_be_emptied(
    name: str, clears: Clears
) -> None:
    """Neither its prompt nor 300 tokens empty it once; closing the model does. B58."""
    with LLM(str(checkpoint_dir(name)), prefill_chunk=64) as llm:
        clears.since()
        [out] = llm.generate([prompt(300)], LONG)
        assert len(out.token_ids) == 300
        assert clears.since() == 0
    assert clears.since() == 1


def test_no_traffic_empties_it_either(clears: Clears) -> None:
    """Joins, leaves, aborts, refusals, reused prompts and a prefix cache that is cleared. B58."""
    with LLM(str(checkpoint_dir("qwen3_5_vl")), max_batch=4) as llm:
        clears.since()
        for _ in range(2):
            handles = [llm.submit(prompt(20 + at, at), greedy(4 + at)) for at in range(12)]
            for _ in range(6):
                llm.step()
            llm.clear_cache()
            handles[0].abort()
            handles[9].abort()
            while not all(handle.done for handle in handles):
                llm.step()
            [refused] = llm.generate([chat({"type": "nothing"})], greedy(2))
            assert refused.finish_reason == "error"
        assert clears.since() == 0
        llm.clear_cache()  # while nobody is there to wait
        assert clears.since() == 1


def test_a_model_that_does_not_load_gives_its_memory_back(
    clears: Clears, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, when all of its weights are in memory and it fails. B58."""

    def fail(*_: object) -> None:
        clears.since()
        raise RuntimeError("no such luck")

    monkeypatch.setattr(sys.modules[load.__module__], "_run_once", fail)
    with pytest.raises(ModelError, match="no such luck"):
        LLM(str(checkpoint_dir("llama")))
    assert clears.since() == 1


def test_control_a_step_that_empties_it_is_counted(
    clears: Clears, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = Engine.step, iter(range(10_000))

    def careless(engine: Engine) -> object:
        if next(steps) % 256 == 255:
            mx.clear_cache()
        return step(engine)

    monkeypatch.setattr(Engine, "step", careless)
    with LLM(str(checkpoint_dir("llama"))) as llm:
        clears.since()
        llm.generate([prompt(30)], LONG)
        assert clears.since() == 1
