"""Lines about the system: each says what to do where something is missing."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bushel.core.version import VERSION
from bushel.doctor import system
from bushel.doctor.finding import DoctorOptions
from bushel.server.options import ServerOptions
from tests.depth import often
from tests.server.server_process import free_port


def test_every_line_has_its_probe() -> None:
    names = [probe.name for probe in system.section(DoctorOptions()).probes]
    assert names == ["machine", "python", "versions", "memory", "descriptors", "disk", "port"]


def test_versions_are_told() -> None:
    (finding,) = system.versions()
    assert finding.status == "ok"
    assert f"bushel {VERSION}, mlx 0." in finding.words
    assert "mlx-lm 0." in finding.words


def test_a_package_that_is_missing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_PACKAGES", ("mlx", "no-such-package-at-all"))
    (finding,) = system.versions()
    assert finding.status == "wrong"
    assert "no-such-package-at-all missing" in finding.words
    assert "pip install no-such-package-at-all;" in finding.advice


DESCRIPTORS = "from bushel.doctor import system; print(*system.file_descriptors())"


@pytest.mark.parametrize(
    ("limit", "status"), often([(48, "wrong"), (64, "slow"), (1024, "ok")], (48, "wrong"))
)
def test_too_few_descriptors_are_wrong(limit: int, status: str) -> None:
    """The control is a limit that is enough."""
    command = f'ulimit -n {limit}; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", command, "sh", sys.executable, "-c", DESCRIPTORS],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"status='{status}'" in done.stdout
    assert ("ulimit -n" in done.stdout) == (status != "ok")


def usage(free: int) -> Any:
    return lambda _: SimpleNamespace(free=free, total=10**12)


@pytest.mark.parametrize(("free", "status"), [(10**6, "wrong"), (10**11, "ok")])
def test_a_full_disk_is_wrong(free: int, status: str) -> None:
    findings = list(system.disk(usage(free)))
    assert [(it.name, it.status) for it in findings] == [
        ("hub cache", status),
        ("temporary files", status),
    ]
    assert all(("should be free" in it.advice) == (status == "wrong") for it in findings)


def test_a_folder_that_is_not_there_yet_is_looked_for_above(tmp_path: Path) -> None:
    folders = {"hub cache": str(tmp_path / "no" / "such")}
    (finding,) = system.disk(shutil.disk_usage, folders)
    assert finding.name == "hub cache"
    assert "GB" in finding.words or "MB" in finding.words


def test_a_port_that_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    number = free_port()
    monkeypatch.setattr(ServerOptions, "port", number)
    (free,) = system.port()
    assert free.words == f"{number} is free on 127.0.0.1"
    with socket.create_server(("127.0.0.1", number)):
        (taken,) = system.port()
    assert f"{number} is taken" in taken.words
