"""Claims on a machine's memory: they end with whoever holds them, however that ends (B73)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.server.models.claims import ClaimBusy, Claims, share

HOLDER = """
import sys, time
from pathlib import Path
from bushel.server.models.claims import Claims
claims = Claims(Path(sys.argv[1]))
with claims.locked():
    ticket = claims.add("m", 5)
    ticket.grant(7)
if sys.argv[2] == "hand":
    import subprocess
    sleeper = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    child = subprocess.Popen(sleeper, pass_fds=[ticket.descriptor], stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
print("held", flush=True)
time.sleep(600)
"""


def seen(claims: Claims) -> list[tuple[int, int]]:
    with claims.locked():
        return [(it.record.need, it.record.granted) for it in claims.all()]


def holder(folder: Path, how: str = "keep") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(folder), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_claim_ends_with_the_process_that_holds_it(tmp_path: Path) -> None:
    claims, process = Claims(tmp_path), holder(tmp_path)
    assert line(process) == "held"
    assert seen(claims) == [(5, 7)]
    process.kill()
    process.wait()
    assert seen(claims) == []
    assert [path.name for path in (tmp_path / "claims").iterdir()] == ["lock"]


def test_a_claim_outlives_a_front_while_its_engine_lives(tmp_path: Path) -> None:
    claims, process = Claims(tmp_path), holder(tmp_path, "hand")
    engine = int(line(process))
    assert line(process) == "held"
    process.kill()
    process.wait()
    assert seen(claims) == [(5, 7)]
    os.kill(engine, signal.SIGKILL)
    while seen(claims):  # until the system has taken its descriptors
        pass


def test_what_is_released_is_free_at_once(tmp_path: Path) -> None:
    mine, other = Claims(tmp_path), Claims(tmp_path)
    with mine.locked():
        ticket = mine.add("m", 3)
    assert seen(mine) == seen(other) == [(3, 0)]
    ticket.grant(9)
    assert seen(other) == [(3, 9)]
    mine.release(ticket)
    assert seen(mine) == seen(other) == []


def test_a_folder_that_is_held_for_long_is_told(tmp_path: Path) -> None:
    mine, other = Claims(tmp_path), Claims(tmp_path)
    with mine.locked(), pytest.raises(ClaimBusy), other.locked():
        pass
    with other.locked():
        pass


@given(st.integers(1, 1 << 40), st.lists(st.integers(1, 1 << 38), min_size=1, max_size=9))
def test_shares_are_never_more_than_there_is_nor_less_than_is_needed(
    limit: int, needs: list[int]
) -> None:
    shares = [share(limit, needs, at) for at in range(len(needs))]
    assert sum(shares) <= limit
    if sum(needs) <= limit:
        assert all(mine >= need for mine, need in zip(shares, needs, strict=True))
