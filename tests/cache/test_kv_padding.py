"""On CUDA the room of a row that is alone follows from its length, wherever its state came from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import LLM, SamplingParams
from bushel.cache import batch_state, kv_padding
from bushel.core.footprint import STEP
from bushel.models.device import ON_CUDA
from tests.families import checkpoint_dir
from tests.llm.request_builders import prompt

PARAMS = SamplingParams(max_tokens=96, ignore_eos=True, temperature=0, logprobs=1)


@given(st.integers(1, 40_000))
def test_there_is_a_free_place_and_never_more_than_a_step_of_them(position: int) -> None:
    room_for, until = kv_padding.padded_length(position), kv_padding.fits_until(position)
    assert position < room_for <= position + STEP
    assert position < until <= room_for
    assert (room_for % STEP == 0) == (position >= kv_padding.LONG)
    # It is the same for every length in between, so that how a row got here does not matter.
    assert {kv_padding.padded_length(at) for at in (position, until - 1)} == {room_for}


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_state, "ON_CUDA", True)
    monkeypatch.setattr(kv_padding, "LONG", 600)


Seen = tuple[dict[int, int], list[object]]


def seen() -> Seen:
    """Room by position while a row is alone, and replies: some meet, and one is left alone."""
    handles, found = [], {}
    with LLM(str(checkpoint_dir("llama")), prefill_chunk=64, speculate="off") as llm:
        assert llm._engine is not None
        llm._engine._times.clock = lambda: 0.0  # how prompts are cut follows from what they cost
        waiting = [250, 250, 560, 700]
        while waiting or not all(handle.done for handle in handles):
            if waiting:
                handles.append(llm.submit(prompt(waiting.pop(0)), PARAMS))
            for _ in range(40):
                llm.step()
                batch = llm._engine._batch
                batch.check_integrity()
                if len(batch) == 1:
                    found[batch.rows.positions[0]] = batch.rows.layers[0].keys.shape[2]
    return found, [(handle.output.token_ids, handle.output.logprobs) for handle in handles]


@pytest.fixture(scope="module")
def untouched() -> Seen:
    return seen()


# There the room decides which of two attention kernels runs, and they round differently.
elsewhere = pytest.mark.skipif(ON_CUDA, reason="compares with what happens without CUDA")


@elsewhere
def test_room_follows_from_the_length_and_changes_no_reply(untouched: Seen, cuda: None) -> None:
    found, replies = seen()
    assert replies == untouched[1]
    assert found == {position: kv_padding.padded_length(position) for position in found}
    assert {255, 256} < found.keys()
    assert {True, False} == {at >= kv_padding.LONG for at in found}


@elsewhere
def test_control_by_itself_it_does_not(untouched: Seen) -> None:
    found, _ = untouched
    assert found != {position: kv_padding.padded_length(position) for position in found}
