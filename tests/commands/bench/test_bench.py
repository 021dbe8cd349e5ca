"""`bushel bench` against a real server, somebody else's, and such as refuse or go away."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel.cli import main
from tests.commands.bench.chat_stand_in import chat_stand_in
from tests.commands.conftest import KEY
from tests.server.server_process import FEW, Server, alive, children, serving, until

SMALL = ("--concurrency", "1", "2", "--prompt-tokens", "40", "90", "--output-tokens", "6")
LONG = ("--concurrency", "2", "--prompt-tokens", "40", "--output-tokens", "64", "--requests", "60")


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BUSHEL_URL", "BUSHEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def bench(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bushel", "bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_table_and_every_requests_times(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, plot = tmp_path / "a.json", tmp_path / "a.svg"
    named = ("--url", server.url, "--api-key", KEY, "--json", str(file), "--plot", str(plot))
    assert main(["bench", *named, *SMALL, "--requests", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"bushel:tiny at {server.url}, replies of 6 tokens"
    rows = [line.split() for line in lines[3:]]
    assert [row[:3] for row in rows] == [
        ["40", "1", "3"], ["40", "2", "3"], ["90", "1", "3"], ["90", "2", "3"],
    ]  # fmt: skip
    assert {row[-1] for row in rows} == {"0"}

    told = json.loads(file.read_text())
    assert told["model"] == "bushel:tiny"
    assert told["server"] == {"version": told["versions"]["bushel"]}
    assert told["machine"]
    assert told["settings"]["output_tokens"] == 6
    assert [len(run["requests"]) for run in told["runs"]] == [3] * 4
    for run, cell in zip(told["runs"], told["cells"], strict=True):
        asked = run["requests"]
        assert {one["prompt_tokens"] for one in asked} == {run["cell"]["prompt_tokens"]}
        assert {(one["output_tokens"], one["error"]) for one in asked} == {(6, "")}
        for one in asked:
            times = [one["start"], *one["times"], one["end"]]
            assert times == sorted(times)
        firsts = [one["times"][0] - one["start"] for one in asked]
        # The file has microseconds.
        assert cell["first_p95"] == pytest.approx(np.percentile(firsts, 95), abs=1e-5)
    assert plot.read_text().startswith("<svg")
    assert KEY not in file.read_text()


@pytest.mark.long
def test_prompts_share_nothing_unless_they_should(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("bench", "--url", server.url, "--api-key", KEY, "--json", "-", "--requests", "2")
    cell = ("-c", "1", "-p", "400", "-o", "2", "--seed", "1")

    def cached(*more: str) -> int:
        assert main([*named, *cell, *more]) == 0
        told = capsys.readouterr()
        assert "prompt" in told.err
        return int(json.loads(told.out)["cells"][0]["cached_tokens"])

    few = cached()
    assert few < 2 * 32
    assert cached("--shared-prefix", "300", "--seed", "2") > 300
    assert cached() > 2 * 300  # control: the same prompts again


@pytest.mark.long
def test_a_model_gets_a_server_of_its_own_which_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    running = bench("bushel:tiny", *SMALL, "--requests", "1", "--json", str(file), "--", *FEW)
    out, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    assert len(out.splitlines()) == 3 + 4
    port = int(json.loads(file.read_text())["url"].rpartition(":")[2])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 5).close()


def test_flags_that_the_server_refuses_are_told_in_a_line() -> None:
    running = bench("bushel:tiny", "--", "--no-such-flag")
    _, err = running.communicate(timeout=120)
    assert running.returncode == 2
    assert "--no-such-flag" in err
    assert err.count("\n") == 1


# -- somebody else's, and such as fail -----------------------------------------------------


def test_a_server_that_neither_counts_nor_sends_chunks_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with chat_stand_in() as theirs:
        assert main(["bench", "--url", theirs.url, *SMALL, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == "theirs"
    assert {one["prompt_tokens"] for run in told["runs"] for one in run["requests"]} == {40, 90}
    streamed = [body["messages"][0]["content"] for body in theirs.bodies if body.get("stream")]
    assert len(set(streamed)) == len(streamed)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (None, "names no model"),
        ({"data": [{"id": "one"}, {"id": "two"}]}, "several models: one, two"),
    ],
)
def test_a_server_that_does_not_name_one_model_needs_a_name(
    models: object, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_stand_in() as theirs:
        theirs.models = models
        assert main(["bench", "--url", theirs.url]) == 2
        assert words in capsys.readouterr().err
        assert main(["bench", "mine", "--url", theirs.url, *SMALL]) == 0
    assert {body["model"] for body in theirs.bodies} == {"mine"}


def test_requests_that_are_refused_are_counted_and_the_first_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with chat_stand_in(lambda number: number % 2 == 1) as theirs:
        named = ("bench", "--url", theirs.url, "--json", "-")
        assert main([*named, *SMALL, "-c", "1", "--requests", "8"]) == 1
    told = capsys.readouterr()
    cells = json.loads(told.out)["cells"]
    assert [(cell["requests"], cell["errors"]) for cell in cells] == [(4, 4), (4, 4)]
    assert "bushel: 8 requests failed; the first: 503: Too busy for you." in told.err


def test_a_server_that_refuses_everything_is_asked_everything_and_not_taken_for_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with chat_stand_in(lambda _: True) as theirs:
        assert main(["bench", "--url", theirs.url, *SMALL]) == 1
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 3 + 4
    assert "gone" not in told.err


def answered(server: Server) -> set[str]:
    """Requests that the server lately answered at full length, which a warm-up is not."""
    recent: list[dict[str, Any]] = server.status()["recent"]
    return {one["id"] for one in recent if one["completion_tokens"] == 64}


@pytest.mark.long
def test_a_server_that_is_killed_ends_the_measurement(tmp_path: Path) -> None:
    with serving(*FEW) as server:
        file = tmp_path / "a.json"
        running = bench("--url", server.url, *LONG, "-p", "40", "60", "--json", str(file))
        until(lambda: answered(server), "some requests were answered")
        engine = children(server.process.pid)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        out, err = running.communicate(timeout=300)
        until(lambda: not any(map(alive, engine)), "its processes are gone")
    assert running.returncode == 1
    assert "is gone" in err or "does not answer" in err
    [cell] = json.loads(file.read_text())["cells"]
    assert cell["requests"] > 0
    assert cell["errors"] > 0
    assert len(out.splitlines()) == 4


def test_an_interrupt_prints_what_there_is(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    running = bench("--url", server.url, "--api-key", KEY, *LONG, "--json", str(file))
    until(lambda: answered(server), "some requests were answered")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert err.endswith("bushel: interrupted; this is what there is.\n")
    [run] = json.loads(file.read_text())["runs"]
    assert run["interrupted"]
    assert all(not one["error"] for one in run["requests"])
    assert len(out.splitlines()) == 4


@pytest.mark.long
def test_an_interrupt_ends_a_server_of_its_own() -> None:
    running = bench("bushel:tiny", *LONG, "--", *FEW)
    assert running.stdout is not None
    for _ in range(3):
        running.stdout.readline()
    started = children(running.pid)
    assert started
    started += [one for pid in started for one in children(pid)]
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=120)
    assert running.returncode == 130
    assert not any(map(alive, started))


def test_what_is_wrong_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSHEL_PORT", "9")
    monkeypatch.setenv("BUSHEL_RUNTIME_DIR", str(tmp_path))
    other = tmp_path / "other.json"
    other.write_text("{}")
    for arguments, words in (
        ((), "No server runs here."),
        (("--url", "http://127.0.0.1:9"), "127.0.0.1:9 does not answer"),
        (("--", "--kv-bits", "8"), "name a MODEL"),
        (("--compare", str(other), str(other)), "is not a file of bushel bench --json"),
        (("--compare", "nothing", "nothing"), "nothing cannot be read: No such file"),
    ):
        assert main(["bench", *arguments]) == 2
        told = capsys.readouterr().err
        assert words in told
        assert told.count("\n") == 1
