"""`python -m benchmarks.drafts` and `benchmarks.divergence`: what fails them, without a clock."""

import mlx.core as mx
import pytest

from benchmarks import divergence
from benchmarks.divergence import Rehearsed
from benchmarks.draft_limit import BarePass, BareStep, Limit, Way
from benchmarks.drafts import Side, compare, of_network
from benchmarks.networks import make
from bushel.models import Model

from ..parity.draft_mistakes import one_more

ROWS, TOKENS = 2, 24


@pytest.fixture
def model() -> Model:
    return make("nano", mx.float32)


def _sides(model: Model, rate: float = 0.8) -> tuple[Side, Side]:
    return of_network(model, rate, ROWS, TOKENS, prompt=16)


def test_every_pair_of_replies_is_compared(model: Model, capsys: pytest.CaptureFixture) -> None:
    plain, drafts = _sides(model)
    assert compare(plain, drafts, ROWS, pairs=3)
    assert f"6 of {3 * ROWS}" in capsys.readouterr().out


def test_control_one_other_token_in_one_pair_is_told(
    model: Model, capsys: pytest.CaptureFixture
) -> None:
    plain, drafts = _sides(model)
    serve = drafts.serve

    def once_wrong(count: int) -> float:
        speed = serve(count)
        if drafts._served == 4:  # of the first pair: two to warm up, and one to count rounds
            drafts.replies[0][-1] += 1
        return speed

    drafts.serve = once_wrong  # type: ignore[method-assign]
    assert not compare(plain, drafts, ROWS, pairs=3)
    assert f"5 of {3 * ROWS}" in capsys.readouterr().out


def test_the_limit_is_told_also_where_nothing_is_drafted(
    model: Model, capsys: pytest.CaptureFixture
) -> None:
    plain, drafts = _sides(model)
    drafts.engine._rows.batch.drafts = None
    assert compare(plain, drafts, 1, pairs=2, rate=0.8)
    assert "after the first token" in capsys.readouterr().out


def test_a_limit_is_what_a_person_counts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BareStep, "seconds", lambda self: 2.0)
    monkeypatch.setattr(BarePass, "seconds", lambda self: float(self._width))
    # 8 tokens: two passes of 2.5 and a draft of 1.5 tokens each, and one plain step.
    some = Limit(model, 1.0, [Way(tokens=8, passes=2, width=2.5, plain=1)])
    none = Limit(model, 1.0, [Way(1.5, 1, 2), Way(1.8, 1, 4)])
    for each in (some, none):
        each.look()
    assert float(some) == 8 * 2 / (2 * (2.5 + 1.5) + 2)
    assert float(none) == 1.5 * 2 / (2 + 1)


def test_replies_that_part_at_a_tie_are_told_from_wrong_ones(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert divergence.compare(model, ROWS, TOKENS, rate=0.8)
    one_more(monkeypatch)
    assert not divergence.compare(model, ROWS, TOKENS, rate=0.8)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_control_a_run_without_drafts_that_hold_and_fail_shows_nothing(
    model: Model, rate: float
) -> None:
    assert not divergence.compare(model, ROWS, TOKENS, rate)


def test_control_so_does_one_whose_drafter_fails(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Rehearsed, depths: list[int]) -> list[list[int]]:
        raise RuntimeError("no drafts")

    monkeypatch.setattr(Rehearsed, "propose", fail)
    assert not divergence.compare(model, ROWS, TOKENS, rate=0.8)
