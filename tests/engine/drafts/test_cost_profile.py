"""What passes cost is found by running some."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

import pytest

from bushel import LLM
from bushel.cache import BatchState
from bushel.engine.drafts.cost_profile import measure
from bushel.models import Model
from tests.families import checkpoint_dir


@pytest.fixture(scope="module", params=["llama", "qwen3_5"])
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    with LLM(str(checkpoint_dir(request.param)), speculate="off") as llm:
        assert llm._engine is not None
        yield llm._engine.model


def test_every_pass_has_a_cost_up_to_the_largest_batch(model: Model) -> None:
    rows = partial(BatchState, model.make_state, model.pages, drafts=True)
    profile = measure(model, rows, 6)
    assert len(profile.seconds) == 6
    assert profile.deepest == 7
    assert all(cost > 0 for row in profile.seconds for cost in row)


def test_a_slow_machine_measures_one_row_alone_and_drafts_in_no_larger_batch(model: Model) -> None:
    ticks = count()
    rows = partial(BatchState, model.make_state, model.pages, drafts=True)
    profile = measure(model, rows, 4, clock=lambda: float(next(ticks)))
    assert profile.deepest == 7
    assert profile.cost(4, 1) == profile.cost(1, 1)
    assert profile.cost(4, 8) == 4 * profile.cost(1, 8)
