"""An `LLM` shares the machine's memory with servers and other scripts, by files alone (B73)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bushel import LLM, ModelError, script_claim
from bushel.core.held_files import VARIABLE
from bushel.server.models.claims import Claims, MemoryTicket

MACHINE = 4_000_000_000
TINY = "bushel:tiny"  # needs 0.6 GB
SCRIPT = "import bushel, sys; llm = bushel.LLM('bushel:tiny'); print('up', flush=True); input()"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(script_claim.device_memory, "memory_limit", lambda *_: MACHINE)
    return tmp_path


def records(runtime: Path) -> list[dict[str, Any]]:
    files = [path for path in (runtime / "claims").iterdir() if path.name != "lock"]
    return [json.loads(path.read_text()) for path in files]


@pytest.fixture
def other(runtime: Path) -> Iterator[tuple[Claims, MemoryTicket]]:
    """A claim of somebody else's."""
    claims = Claims(runtime)
    with claims.locked():
        ticket = claims.add("other", 1)
    yield claims, ticket
    claims.release(ticket)


def limit(llm: LLM) -> int:
    return int(llm.status()["memory"]["claimed_bytes"])


def test_a_script_claims_what_it_needs_while_it_is_open(runtime: Path) -> None:
    with LLM(TINY) as llm:
        [claim] = records(runtime)
        assert claim["need"] == claim["granted"] > 500_000_000
        assert claim["model"] == TINY
        assert limit(llm) == MACHINE
    assert records(runtime) == []


def test_a_load_that_fails_leaves_no_claim(runtime: Path) -> None:
    with pytest.raises(ModelError):
        LLM(TINY, dtype="int3")
    assert records(runtime) == []


@pytest.mark.long
def test_a_script_that_is_killed_leaves_no_claim(runtime: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    claims = Claims(runtime)
    with claims.locked():
        assert len(claims.all()) == 1
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with claims.locked():
        assert claims.all() == []


def test_it_keeps_to_what_others_leave_and_gets_it_back(
    other: tuple[Claims, MemoryTicket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_claim, "_LOOK", 0.0)
    _, ticket = other
    with LLM(TINY) as llm:
        before = llm.generate("Once upon a time", {"max_tokens": 8, "temperature": 0})[0]
        ticket.grant(3_000_000_000)
        after = llm.generate("Once upon a time", {"max_tokens": 8, "temperature": 0})[0]
        assert limit(llm) == 1_000_000_000
        assert after.token_ids == before.token_ids
        ticket.grant(0)
        llm.generate("Once upon a time", {"max_tokens": 8})
        assert limit(llm) == MACHINE


def test_it_waits_until_others_make_room(
    other: tuple[Claims, MemoryTicket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ticket = other
    ticket.grant(MACHINE)
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            ticket.grant(2_000_000_000)

    monkeypatch.setattr(script_claim.time, "sleep", sleep)
    with LLM(TINY) as llm:
        assert len(waited) >= 3
        assert limit(llm) == 2_000_000_000


def test_it_is_refused_where_others_need_too_much(
    runtime: Path, other: tuple[Claims, MemoryTicket], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ticket = other
    ticket.write(msgspec.structs.replace(ticket.record, need=MACHINE, granted=MACHINE))
    monkeypatch.setattr(script_claim, "CROWDED", -1.0)
    with pytest.raises(ModelError, match=r"other Bushel processes on this machine have 4\.00 GB"):
        LLM(TINY)
    assert len(records(runtime)) == 1


def test_two_in_one_process_do_not_wait_for_each_other(runtime: Path) -> None:
    with LLM(TINY, memory_limit=1_000_000_000), LLM(TINY) as second:
        assert len(records(runtime)) == 2
        assert limit(second) == MACHINE


def test_without_a_place_for_claims_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object) -> None:
        raise script_claim.BushelError("No folder for claims on memory can be made.")

    monkeypatch.setattr(script_claim, "_claims", nowhere)
    with LLM(TINY) as llm:
        assert limit(llm) == MACHINE
