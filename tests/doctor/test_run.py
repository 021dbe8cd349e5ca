"""A report comes to its end whatever its probes do, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bushel.doctor import process, run
from bushel.doctor.finding import DoctorOptions, Finding, Found, Section
from tests.depth import often
from tests.doctor import failing_probes
from tests.server.server_process import alive, until

ROOT = Path(__file__).parents[2]
FAILING = {"failing": "tests.doctor.failing_probes"}


def ran(**more: Any) -> dict[str, list[Finding]]:
    """Findings by their names."""
    found: dict[str, list[Finding]] = {}
    options = more.pop("options", DoctorOptions())
    run.run(
        options,
        lambda _, finding: found.setdefault(finding.name, []).append(finding),
        lambda _: None,
        more.pop("sections", FAILING),
        **more,
    )
    return found


@pytest.fixture(scope="module")
def findings() -> dict[str, list[Finding]]:
    return ran()


def test_every_probe_gets_its_turn(findings: dict[str, list[Finding]]) -> None:
    assert list(findings) == ["first", "raises", "hangs", "crashes", "long", "last"]
    assert findings["first"][0].status == findings["last"][0].status == "ok"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "ValueError: this went wrong"),
        ("hangs", "did not end within 1 s"),
        ("crashes", "ended by SIGABRT: out of memory, say"),
    ],
)
def test_a_probe_that_fails_is_wrong_and_says_how(
    name: str, words: str, findings: dict[str, list[Finding]]
) -> None:
    last = findings[name][-1]
    assert last.status == "wrong"
    assert words in last.words
    assert "report" in last.advice


def test_what_a_probe_found_before_it_failed_is_told(findings: dict[str, list[Finding]]) -> None:
    assert [finding.status for finding in findings["raises"]] == ["ok", "wrong"]


def test_what_a_lost_probe_has_started_is_gone(findings: dict[str, list[Finding]]) -> None:
    pid = int(findings["hangs"][0].words)
    until(lambda: not alive(pid), "the probe's own process is gone")


def test_a_quick_report_leaves_out_what_is_long() -> None:
    probes = failing_probes.section(DoctorOptions()).probes
    section = Section([probe for probe in probes if probe.name in ("first", "long")])
    for quick, status in ((True, "skipped"), (False, "ok")):
        told = [it.finding for it in process.findings(section, 0, quick) if isinstance(it, Found)]
        assert [it.status for it in told] == ["ok", status]


def test_when_the_time_is_over_the_rest_is_skipped() -> None:
    found = ran(seconds=0.0)
    assert [finding.status for (finding,) in found.values()] == ["skipped"]
    assert "--section failing" in found["failing"][0].advice


REPORT = """
import sys
from bushel.doctor import run
from bushel.doctor.finding import DoctorOptions

def found(section, finding):
    print(finding.name, finding.words, flush=True)

probes = "tests.doctor.failing_probes"
for finding in run.section_findings(probes, DoctorOptions(), float("inf"), lambda _: None):
    found("", finding)
"""


@pytest.mark.parametrize(
    "number", often([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], signal.SIGKILL)
)
def test_a_report_that_is_ended_takes_all_along(number: signal.Signals, tmp_path: Path) -> None:
    """Also when it can do nothing about it any more."""
    program = tmp_path / "report.py"
    program.write_text(REPORT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    words = next(line.split() for line in process.stdout if line.startswith("hangs "))
    process.send_signal(number)
    process.communicate()
    until(lambda: not alive(int(words[1])), "what the probe has started is gone")


def test_a_module_that_cannot_be_imported_is_one_line() -> None:
    (finding,) = ran(sections={"nothing": "tests.doctor.no_such_section"})["start"]
    assert finding.status == "wrong"
    assert "no_such_section" in finding.words
