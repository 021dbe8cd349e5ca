"""A batch whose engine and server are killed, again and again, answers every request once (B83)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import openai
import pytest

from .server_process import FEW, PATIENCE, Server, alive, children, until
from .test_batches import CHAT, begun, ended, line, question, results

pytestmark = pytest.mark.long

COUNT = 240


def client_of(server: Server) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="any", timeout=PATIENCE, max_retries=0
    )


def killed(server: Server) -> None:
    """Front, engine and workers at once."""
    pids = [server.process.pid, *children(server.process.pid)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    server.process.wait()
    until(lambda: not any(alive(pid) for pid in pids), "all its processes are gone")


def done(server: Server, batch_id: str, least: int) -> int:
    """How many are answered, once these are."""

    def count() -> int:
        answer = server.http.get(f"/v1/batches/{batch_id}")
        if answer.status_code == 503:
            return 0  # the folder is not its own yet
        completed = int(answer.raise_for_status().json()["request_counts"]["completed"])
        return completed if completed >= least else 0

    return int(until(count, f"{least} requests are answered"))


def test_every_request_is_answered_once_whatever_is_killed(tmp_path: Path) -> None:
    """The engine; then everything; then everything again while it resumes. What was answered stays,
    a line that was half written is cut, and another server on the same folder waits its turn. B83.
    """
    at_most = ("--max-num-seqs", "4", "--batch-dir", str(tmp_path))
    lines = [line(str(at), question(at, max_tokens=40, ignore_eos=True)) for at in range(COUNT)]
    first = Server(*FEW, *at_most).wait()
    second = Server(*FEW, *at_most)
    servers = [first, second]
    try:
        second.wait()
        with client_of(first) as client:
            batch = begun(client, lines)
            before = done(first, batch.id, 10)
            os.kill(first.status()["engine"]["pid"], signal.SIGKILL)
            before = done(first, batch.id, before + 5)
            with client_of(second) as other, pytest.raises(openai.APIStatusError) as refusal:
                other.batches.retrieve(batch.id)
            assert refusal.value.status_code == 503
        killed(first)
        before = done(second, batch.id, before + 3)  # goes on where it was
        killed(second)
        assert before < COUNT
        [output] = [path for path in (tmp_path / "results").iterdir() if path.stat().st_size]
        kept = output.read_bytes()
        output.write_bytes(kept + kept[: len(kept.splitlines()[0]) // 2])
        third = Server(*FEW, *at_most)
        servers.append(third)
        third.wait()
        with client_of(third) as client:
            batch = ended(client, batch.id)
            assert batch.status == "completed"
            assert batch.request_counts is not None
            assert batch.request_counts.completed == COUNT
            found = results(client, batch.output_file_id)
            assert found.keys() == {str(at) for at in range(COUNT)}
            assert client.files.content(str(batch.output_file_id)).content.startswith(kept)
            for at in (0, COUNT - 1):
                alone = third.http.post(CHAT, json=lines[at]["body"]).raise_for_status().json()
                said = found[str(at)]["response"]["body"]["choices"]
                assert said == alone["choices"]
    finally:
        for server in servers:
            server.close()


def test_what_was_not_answered_in_time_is_told_so(tmp_path: Path) -> None:
    """A server that was down when a batch's time ended. What was answered before is kept. B83."""
    flags = (*FEW, "--max-num-seqs", "2", "--batch-dir", str(tmp_path))
    lines = [line(str(at), question(at, max_tokens=40, ignore_eos=True)) for at in range(COUNT)]
    first = Server(*flags).wait()
    servers = [first]
    try:
        with client_of(first) as client:
            batch = begun(client, lines)
            done(first, batch.id, 3)
        killed(first)
        [record] = (tmp_path / "batches").iterdir()
        kept = json.loads(record.read_bytes())
        record.write_text(json.dumps({**kept, "expires_at": kept["created_at"]}))
        servers.append(Server(*flags))
        with client_of(servers[-1].wait()) as client:
            batch = ended(client, batch.id)
            assert (batch.status, batch.expired_at is not None) == ("expired", True)
            good, late = (
                results(client, file) for file in (batch.output_file_id, batch.error_file_id)
            )
            counts = batch.request_counts
            assert (counts.total, counts.completed, counts.failed) == (COUNT, len(good), len(late))
            assert (len(good) >= 3, good.keys().isdisjoint(late)) == (True, True)
            assert good.keys() | late.keys() == {str(at) for at in range(COUNT)}
            assert {each["error"]["code"] for each in late.values()} == {"batch_expired"}
    finally:
        for server in servers:
            server.close()
