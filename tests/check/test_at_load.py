"""At load, a family that nothing is known of is tried in a batch, and never served wrongly."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bushel import LLM, Output
from bushel.engine import batching_check
from bushel.models import known_families
from tests.depth import one_in
from tests.families import checkpoint_dir
from tests.families.text import TEXT
from tests.families.vision import VISION
from tests.llm.request_builders import assert_same, greedy, prompt

from .broken_families import EXACT, MISPLACED, MISPLACED_LATE, RAISING, family

REQUESTS = [prompt(length, length) for length in (5, 40, 17)]


def served(llm: LLM) -> list[Output]:
    return llm.generate(REQUESTS, greedy(8))


@pytest.fixture(scope="module")
def right() -> list[Output]:
    with LLM(str(checkpoint_dir("llama"))) as llm:
        return [llm.generate(request, greedy(8))[0] for request in REQUESTS]


@pytest.mark.parametrize(
    ("in_a_batch", "reason"),
    one_in(
        2, [(MISPLACED, "away from the same rows alone"), (RAISING, "one row at a time, please")]
    ),
)
def test_a_family_that_cannot_be_batched_is_served_alone_and_right(
    in_a_batch: str, reason: str, right: list[Output], tmp_path: Path
) -> None:
    with LLM(family(tmp_path, in_a_batch), trust_remote_code=True) as llm:
        assert llm.status()["lane"] == "single"
        assert reason in llm.status()["lane_reason"]
        for mine, other in zip(served(llm), right, strict=True):
            assert_same(mine, other)
        assert llm.status()["max_decode_batch"] == 1


def test_control_without_the_check_it_is_served_wrongly(
    right: list[Output], tmp_path: Path
) -> None:
    path = family(tmp_path, MISPLACED)
    with LLM(path, trust_remote_code=True, self_check=False) as llm:
        assert llm.status()["lane"] == "batch"
        found = served(llm)
    assert [it.token_ids for it in found] != [it.token_ids for it in right]


def test_control_an_exact_family_of_its_own_shares_batches(
    right: list[Output], tmp_path: Path
) -> None:
    with LLM(family(tmp_path, EXACT), trust_remote_code=True) as llm:
        assert llm.status()["lane"] == "batch"
        for mine, other in zip(served(llm), right, strict=True):
            assert_same(mine, other)
        assert llm.status()["max_decode_batch"] == 3


@pytest.mark.parametrize(("window", "lane"), one_in(2, [(300, "single"), (None, "batch")]))
def test_a_mistake_beyond_the_end_of_a_window_is_found(
    window: int | None, lane: str, tmp_path: Path
) -> None:
    """Rows are right until one has 300 tokens, as many as the window; without one, none has."""
    base = "llama" if window is None else "llama_sliding"
    path = family(tmp_path, MISPLACED_LATE, base, sliding_window=window)
    with LLM(path, trust_remote_code=True) as llm:
        assert llm.status()["lane"] == lane


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that were tried in a batch."""
    models: list[Any] = []
    original = batching_check.batching_fault
    monkeypatch.setattr(
        batching_check, "batching_fault", lambda it: models.append(it) or original(it)
    )
    return models


def test_a_known_family_costs_nothing(tried: list[Any]) -> None:
    LLM(str(checkpoint_dir("llama"))).close()
    assert not tried


def test_a_family_that_is_known_to_be_wrong_costs_nothing(
    tried: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(known_families._FAMILIES, "llama", "its rows look at each other")
    with LLM(str(checkpoint_dir("llama"))) as llm:
        assert llm.status()["lane"] == "single"
    assert not tried


def test_rows_that_never_meet_are_not_tried(tried: list[Any], tmp_path: Path) -> None:
    LLM(family(tmp_path, MISPLACED), max_batch=1, trust_remote_code=True).close()
    assert not tried


def test_control_an_unknown_family_is_tried(tried: list[Any], tmp_path: Path) -> None:
    LLM(family(tmp_path, EXACT), trust_remote_code=True).close()
    assert len(tried) == 1


@pytest.mark.parametrize("library", one_in(2, ["mlx_lm", "mlx_vlm"]))
def test_what_is_said_to_be_exact_has_a_checkpoint_that_shows_it(library: str) -> None:
    from mlx_lm.utils import MODEL_REMAPPING
    from mlx_vlm.utils import get_model_type

    families = [it for it in (*TEXT.values(), *VISION.values()) if it.library == library]
    types = {it.config["model_type"] for it in families}
    if library == "mlx_lm":
        types = {MODEL_REMAPPING.get(it, it) for it in types}
    else:
        types = {get_model_type({"model_type": it}) for it in types}
    modules = {import_module(f"{library}.models.{it}").Model.__module__ for it in types}
    shown = {module.rpartition(".")[2] for module in modules}
    assert known_families._EXACT[library] <= shown
    assert not known_families._EXACT[library] & known_families._FAMILIES.keys()
