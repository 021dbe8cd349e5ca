"""A short run of the fuzzer, and what it has to notice (B9, B42).

`make fuzz` runs it for as long as one likes, over many families and over HTTP.
"""

import pytest

from tests.fuzz.__main__ import drawn, main
from tests.fuzz.shrink import shrink
from tests.fuzz.workload import Workload

# Attention alone, and recurrent layers beside it with images.
FAMILIES = "llama,qwen3_5_vl"
RUN = ["--seconds", "1000", "--seed", "3", "--no-http", "--workloads"]


@pytest.mark.long
def test_random_workloads_answer_every_request_as_it_is_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Four drawn workloads on two families, without one mismatch. B9, B42."""
    code = main([*RUN, "4", "--families", FAMILIES])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "4 workloads" in told
    assert " 0 mismatches, 2 families" in told


@pytest.mark.long
def test_state_put_where_it_was_is_noticed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control: what was read from disk lies over a hole, and passes for a beginning."""
    monkeypatch.setattr("tests.fuzz.__main__._SHRINK", 0.0)
    assert main([*RUN, "9", "--families", "llama", "--mutation", "old-load"]) == 1
    told = capsys.readouterr().out
    assert "log-probabilities off by" in told or "IntegrityError" in told
    assert "python -m tests.fuzz --replay llama:3-" in told


def test_a_workload_follows_from_its_seed() -> None:
    def same(one: Workload, two: Workload) -> bool:
        return (one.settings, one.asks, one.acts) == (two.settings, two.asks, two.acts)

    assert same(drawn("llama", "7-3", "llm"), drawn("llama", "7-3", "llm"))
    assert not same(drawn("llama", "7-3", "llm"), drawn("llama", "7-4", "llm"))


def test_what_goes_wrong_is_made_small() -> None:
    assert shrink(40, lambda kept: {7, 21} <= set(kept), 10.0) == [7, 21]
