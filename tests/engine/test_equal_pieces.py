"""A family whose answer depends on how its prompt is cut is cut by the prompt alone.

Neither by who else is there, nor by what a step or the memory has left, nor after a fault: the
answer is that of the same request alone (B49, B61).
"""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from bushel import LLM, SamplingParams
from bushel.core.footprint import Memory
from bushel.engine.decode_batch import DecodeBatch
from tests.families import checkpoint_dir
from tests.families.checkpoint import VOCAB
from tests.parity.run import BOUND, loaded
from tests.prefix.caching_llm import words

# Without a picture, mllama. Of Phi-3, a piece's last token decides how all of it is rotated.
FAMILIES = ("plamo3", "mllama", "phi3_v_long")
CHUNK = 64
LENGTHS = (40, 150, 9, 64, 65, 90)
PARAMS = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, logprobs=VOCAB)
Table = tuple[tuple[int, ...], np.ndarray]


def opened(family: str, **options: Any) -> LLM:
    with patch("bushel.engine.build.load", loaded):
        return LLM(str(checkpoint_dir(family)), **{"prefill_chunk": CHUNK, **options})


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prompts() -> list[dict[str, Any]]:
    return [{"prompt_token_ids": list(words(length, length))} for length in LENGTHS]


def table(output: Any) -> Table:
    assert output.error is None, output.error
    found = np.empty((len(output.token_ids), VOCAB), np.float32)
    for at, entry in enumerate(output.logprobs):
        ids, values = zip(*entry.top, strict=True)
        found[at, list(ids)] = values
    return tuple(output.token_ids), found


@pytest.fixture(scope="module")
def alone(family: str) -> list[Table]:
    with opened(family, max_batch=1) as llm:
        return [table(llm.generate(prompt, PARAMS)[0]) for prompt in prompts()]


@pytest.fixture
def llm(family: str) -> Iterator[LLM]:
    with opened(family) as llm:
        yield llm


def apart(found: list[Table], alone: list[Table]) -> float:
    pairs = list(zip(found, alone, strict=True))
    assert [it[0] for it, _ in pairs] == [it[0] for _, it in pairs]
    return max(float(np.abs(one[1] - two[1]).max()) for one, two in pairs)


def served(llm: LLM) -> list[Table]:
    return [table(it) for it in llm.generate(prompts(), PARAMS)]


def test_a_step_shared_with_other_prompts_cuts_nobody(llm: LLM, alone: list[Table]) -> None:
    assert apart(served(llm), alone) <= BOUND


def test_a_bound_on_gaps_cuts_nobody(family: str, alone: list[Table]) -> None:
    """A running stream lets prompts have next to no time, which makes other families' shorter."""
    with opened(family, token_gap=0.0) as llm:
        stream = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
        handle = llm.submit({"prompt_token_ids": list(words(5))}, stream)
        for _ in range(4):
            llm.step()
        assert not handle.done
        assert apart(served(llm), alone) <= BOUND


def test_memory_cuts_nobody(llm: LLM, alone: list[Table]) -> None:
    """However little is left: a prompt waits until there is room for a whole piece."""
    with patch.object(Memory, "chunk", lambda _, want, least, *_more, **_how: min(want, least)):
        assert apart(served(llm), alone) <= BOUND


def test_a_row_that_is_run_again_is_cut_as_it_was(llm: LLM, alone: list[Table]) -> None:
    """After a fault of its batch: its prompt in the same pieces, its reply token by token."""
    forward, steps = DecodeBatch.forward, iter(range(1000))

    def planted(batch: DecodeBatch) -> Any:
        if next(steps) == 3:
            raise RuntimeError("planted")
        return forward(batch)

    with patch.object(DecodeBatch, "forward", planted):
        found = served(llm)
    assert next(steps) > 4
    assert apart(found, alone) <= BOUND


def test_control_other_pieces_are_another_answer(family: str, alone: list[Table]) -> None:
    with opened(family, max_batch=1, prefill_chunk=24) as llm:
        pairs = zip(served(llm), alone, strict=True)
    assert max(np.abs(one[1][0] - two[1][0]).max() for one, two in pairs) > 100 * BOUND
