"""On the day a family appears: what it keeps, what is known of it, and what it would need."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlx_lm.models.cache import CacheList, KVCache

from bushel import LLM
from bushel.cache import kinds
from bushel.cache.layer_report import layer_reports, span
from bushel.check import trial_json
from bushel.cli import main
from bushel.engine.batching_check import try_batch
from bushel.models import load
from tests.depth import one_in
from tests.llm.request_builders import greedy, prompt

from .broken_families import EXACT, MISPLACED, RAISING, family
from .invented_family import RunningMeanKind, invented

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, command: str, model: str) -> tuple[int, dict[str, Any], str]:
    """The exit code, what it says to scripts, and what to people."""
    code = main([command, model, "--trust-remote-code", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert main([command, model, "--trust-remote-code"]) == code
    return code, report, capsys.readouterr().out


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return invented(tmp_path_factory.mktemp("running_mean"))


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind file that the recipe asks for."""
    kind = RunningMeanKind()
    monkeypatch.setitem(kinds._BY_CLASS, "RunningMean", kind)
    monkeypatch.setitem(kinds._BY_CLASS, "BatchRunningMean", kind)


def test_check_names_the_state_that_is_not_known_and_what_it_needs(
    model: str, capsys: Capture
) -> None:
    code, report, text = told(capsys, "check", model)
    assert (code, report["lane"], report["reuse"]) == (0, "single", False)
    assert report["lane_reason"] == "no batch form of RunningMean is known"
    [each] = report["layers"]
    assert each["state"] == "RunningMean"
    assert each["layers"] == [0, 1, 2, 3]
    assert (each["batches"], each["kept"]) == (False, "")
    assert each["kept_reason"] == "state of RunningMean cannot be kept"
    assert each["library_batch"] == []
    assert report["trial"] is None
    assert "Layers 0-3 keep RunningMean of custom_model: needs a kind of layer state" in text
    assert "docs/guides/new-models.md" in text


@pytest.mark.long
def test_inspect_says_the_same_without_loading(model: str, capsys: Capture) -> None:
    _, checked, _ = told(capsys, "check", model)
    code, report, text = told(capsys, "inspect", model)
    assert code == 0
    assert report["states"] == checked["layers"]
    assert report["prefixes"] == "no: state of RunningMean cannot be kept"
    assert "RunningMean in 4 layers, of its own kind: shares no batch, not kept; needs" in text


@pytest.mark.usefixtures("added")
def test_with_its_kind_the_family_shares_batches_and_is_reused(model: str, capsys: Capture) -> None:
    """The trial's figures are there: how far rows of a batch were from the same rows alone."""
    code, report, text = told(capsys, "check", model)
    assert (code, report["lane"], report["reuse"]) == (0, "batch", True)
    [each] = report["layers"]
    assert (each["kind"], each["batches"], each["kept"]) == ("running mean", True, "as snapshots")
    assert each["needs"] == ""
    assert 0 <= report["trial"]["difference"] <= report["trial"]["bound"] == 1e-4
    verdicts = {each["scenario"]: each for each in report["results"]}
    assert verdicts["kept and restored"]["ok"]
    assert max(each["batch"] for each in report["results"]) == 8
    assert "The family is not known, and was tried as at load:" in text


def forgets(patch: pytest.MonkeyPatch) -> None:
    """What is restored has seen nothing."""
    restore = RunningMeanKind.restore

    def wrong(self: RunningMeanKind, snapshot: Any, fresh: Any) -> Any:
        layer = restore(self, snapshot, fresh)
        layer.total = layer.total * 0
        return layer

    patch.setattr(RunningMeanKind, "restore", wrong)


def miscounts(patch: pytest.MonkeyPatch) -> None:
    """Rows that join count as many tokens as the first one."""
    merge = RunningMeanKind.merge

    def wrong(self: RunningMeanKind, singles: Any) -> Any:
        batch = merge(self, singles)
        batch.count = batch.count * 0 + batch.count[:1]
        return batch

    patch.setattr(RunningMeanKind, "merge", wrong)
    patch.setattr(RunningMeanKind, "check", lambda *_: None)


@pytest.mark.long
@pytest.mark.usefixtures("added")
def test_control_a_kind_that_restores_wrongly_is_noticed(
    model: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgets(monkeypatch)
    code, report, _ = told(capsys, "check", model)
    assert code == 1
    assert [each["scenario"] for each in report["results"] if not each["ok"]] == [
        "kept and restored"
    ]


@pytest.mark.long
@pytest.mark.usefixtures("added")
def test_control_a_kind_that_merges_wrongly_is_noticed_by_the_trial(
    model: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    miscounts(monkeypatch)
    code, report, text = told(capsys, "check", model)
    assert (code, report["lane"]) == (1, "single")
    assert report["trial"]["difference"] > 100 * report["trial"]["bound"]
    assert "apart, where 0.0001 is rounding" in text


def test_a_state_that_is_not_known_is_served_alone_and_says_what_it_says_alone(model: str) -> None:
    """Rows wait for each other, and a forked choice goes on from a copy."""
    requests = [prompt(length, length) for length in (5, 40, 17)]
    with LLM(model, trust_remote_code=True) as llm:
        alone = [llm.generate(request, greedy(6))[0].token_ids for request in requests]
        together = [output.token_ids for output in llm.generate(requests, greedy(6))]
        assert llm.status()["lane"] == "single"
    assert together == alone


@pytest.mark.parametrize(
    ("in_a_batch", "fault"),
    one_in(
        3,
        [
            (EXACT, None),
            (MISPLACED, "away from the same rows"),
            (RAISING, "one row at a time, please"),
        ],
    ),
)
def test_a_trial_has_figures_or_says_what_was_raised(
    in_a_batch: str, fault: str | None, tmp_path: Path
) -> None:
    model = load(family(tmp_path, in_a_batch), trust_remote_code=True)
    trial = try_batch(model)
    model.close()
    assert (trial.difference <= trial.bound) == (fault is None)
    assert trial.fault is None if fault is None else fault in str(trial.fault)
    told_as = trial_json(trial)
    assert told_as["difference"] is None if in_a_batch == RAISING else told_as["bound"] == 1e-4


class PoolState:
    """As the libraries' own: it can be merged."""

    def merge(self) -> None: ...

    def filter(self) -> None: ...


def test_a_part_that_is_not_known_is_named_with_what_the_library_has_for_it() -> None:
    plain, mixed = layer_reports([KVCache(), CacheList(KVCache(), PoolState()), KVCache()])
    assert (plain.state, plain.layers, plain.kept) == ("KVCache", (0, 2), "by token")
    assert mixed.state == "CacheList(KVCache, PoolState)"
    assert mixed.library_batch == ("merge", "filter")
    assert "a kind of layer state for PoolState, and the library's batch form of it" in mixed.needs
    assert not mixed.batches


def test_layers_are_told_as_people_write_them() -> None:
    assert span((0, 1, 2, 5, 7, 8)) == "0-2, 5, 7-8"
