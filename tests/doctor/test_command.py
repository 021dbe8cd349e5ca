"""The command as users run it: every section, one exit code, one line for what cannot be asked."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bushel.cli import main
from bushel.doctor import batch, report
from bushel.doctor.finding import DoctorOptions, Finding, digits, duration, size
from bushel.doctor.report import DoctorReport
from bushel.doctor.sections import SECTIONS
from tests.check.broken_families import EXACT, MISPLACED, family
from tests.depth import one_in
from tests.server.server_process import PATIENCE


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    command = [sys.executable, "-m", "bushel", "doctor", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.long
def test_a_quick_report_has_every_section_and_nothing_is_wrong(quick: dict[str, Any]) -> None:
    assert quick["ok"]
    assert list(dict.fromkeys(it["section"] for it in quick["findings"])) == list(SECTIONS)
    assert quick["counts"]["wrong"] == 0
    assert quick["counts"]["ok"] >= 20


@pytest.mark.long
def test_what_is_left_out_is_said(quick: dict[str, Any]) -> None:
    skipped = {it["name"]: it["words"] for it in quick["findings"] if it["status"] == "skipped"}
    assert {"engine frozen", "sleep"} <= set(skipped) <= {"wired", "engine frozen", "sleep"}
    assert "--sleep" in skipped["sleep"]


@pytest.mark.long
def test_the_server_was_killed_and_answered(quick: dict[str, Any]) -> None:
    words = {it["name"]: it["words"] for it in quick["findings"] if it["section"] == "server"}
    assert "SIGKILL; it answers again" in words["engine killed"]
    assert words["end"].startswith("all its processes are gone")


def test_one_section_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--section", "system"]) == 0
    told = capsys.readouterr()
    head, _, title, *lines = told.out.splitlines()
    assert head.startswith("bushel doctor, bushel ")
    assert title == "system"
    assert lines[0].startswith("  ok       machine ")
    assert "0 wrong" in lines[-1]
    assert not told.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    one_in(
        2,
        [
            (["/no/such/directory"], "neither a directory"),
            (["--section", "kidneys"], "--section"),
            (["--sleep", "-1"], "--sleep"),
            (["--sleep", "soon"], "--sleep"),
            (["--frobnicate"], "--frobnicate"),
        ],
    ),
)
def test_what_cannot_be_asked_is_told_in_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: Any = main(["doctor", *arguments])
    except SystemExit as leaving:
        code = leaving.code
    found = capsys.readouterr()
    assert code == 2
    assert not found.out
    assert found.err.count("\n") == 1
    assert told in found.err


def test_a_model_that_is_wrong_in_batches_is_wrong(tmp_path: Path) -> None:
    options = DoctorOptions(model=family(tmp_path, MISPLACED), trust_remote_code=True)
    for probe, least in ((batch.checked, 3), (batch.tried, 1)):
        wrong = [finding for finding in probe(options) if finding.status == "wrong"]
        assert len(wrong) >= least
        assert all("--max-num-seqs 1" in finding.advice for finding in wrong)


@pytest.mark.long
def test_control_the_same_model_without_its_mistake_is_ok(tmp_path: Path) -> None:
    options = DoctorOptions(model=family(tmp_path, EXACT), trust_remote_code=True)
    for probe in (batch.checked, batch.tried):
        assert {finding.status for finding in probe(options)} == {"ok"}


# -- the report ------------------------------------------------------------------------------


def test_anything_wrong_makes_the_report_so() -> None:
    out = io.StringIO()
    page = DoctorReport(as_json=False, out=out)
    page.add("one", Finding("slow", "a", "late", "Wait."))
    assert not page.wrong
    page.add("one", Finding("wrong", "b", "broken", "Mend it."))
    page.close()
    assert page.wrong
    assert "-> Mend it." in out.getvalue()
    assert "0 ok, 1 slow, 1 wrong, 0 skipped" in out.getvalue()


def test_the_home_folder_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    told = " ".join(report.lines(Finding("ok", "a", "at /home/somebody/models")))
    assert "~/models" in told
    assert "somebody" not in told


def test_numbers_are_told_as_people_read_them() -> None:
    assert [size(10), size(2_500_000), size(137_438_953_472)] == ["10 bytes", "2.5 MB", "137 GB"]
    assert [duration(5e-6), duration(0.0125), duration(3)] == ["5 us", "12.5 ms", "3 s"]
    assert [digits(1234.5), digits(0.123456)] == ["1,234", "0.123"]


def test_whoever_has_seen_enough_of_it_is_told_nothing_more() -> None:
    """As `bushel doctor | head -1` is: no traceback behind it."""
    command = [sys.executable, "-m", "bushel", "doctor", "--section", "system"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().startswith("bushel doctor")
        running.stdout.close()
        assert "Traceback" not in running.stderr.read()
        assert running.wait(PATIENCE) == 1
