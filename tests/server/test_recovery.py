"""Children that die again while they recover: in the end the server serves, and never says that
all is well while it turns requests away, nor the other way round (B47)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import bushel
from tests.server.server_process import FEW, PATIENCE, Server, alive, children, serving, until

pytestmark = pytest.mark.long

HELLO = {"prompt": "a", "max_tokens": 2}
TINY = Path(str(bushel.__file__)).parent / "tiny"


def ask(server: Server) -> httpx.Response:
    return server.http.post("/v1/completions", json=HELLO)


def engine(server: Server) -> Any:
    return server.status()["engine"]


def workers(server: Server, *phases: str) -> list[int]:
    """Those in one of these phases, or all."""
    found = server.status()["workers"]
    return [it["pid"] for it in found if not phases or it["phase"] in phases]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def end_engine(server: Server, doing: str, number: signal.Signals = signal.SIGKILL) -> None:
    """The next engine that is at it."""

    def found() -> int | None:
        now = engine(server)
        at_it = doing in ("ready" if now["ready"] else str(now["reason"]))
        return now["pid"] if now["pid"] and at_it else None

    pid = until(found, f"an engine is {doing}")
    os.kill(pid, number)
    until(lambda: engine(server)["pid"] != pid, "it is gone")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be taken away."""
    return Path(shutil.copytree(TINY, tmp_path_factory.mktemp("recovery") / "tiny"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    options = ("--hang-seconds", "4", "--workers", "2", "--drain-seconds", "1")
    with serving(*options, model=str(model)) as server:
        until(lambda: len(workers(server, "ready")) == 2, "both workers are up")
        yield server


def test_a_worker_that_cannot_open_the_model_for_a_while_is_only_late(
    server: Server, model: Path
) -> None:
    """One of two is replaced while the model's folder is away, then the other one as well. Nothing
    that clients are told names the folder."""
    away = model.with_name("away")
    model.rename(away)
    try:
        first, second = workers(server)
        kill(first)
        until(lambda: "could not open the checkpoint" in server.log, "it cannot be replaced")
        assert server.health() == 200
        assert ask(server).status_code == 200
        kill(second)
        until(lambda: ask(server).status_code == 503, "nobody is left to prepare requests")
        for refused in (ask(server), server.http.get("/health")):
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "engine_unavailable"
            assert str(model.parent) not in refused.text
        assert server.process.poll() is None
    finally:
        away.rename(model)
    until(lambda: server.health() == 200, "the folder is back")
    assert ask(server).status_code == 200
    until(lambda: len(workers(server, "ready")) == 2, "both workers are up")


def test_a_stopped_worker_costs_nobody_a_request(server: Server) -> None:
    """It gives no sign of life; what it had is prepared by another one. The control: one that
    computes for as long, silently, is left alone (`test_a_busy_child_is_not_frozen`)."""
    stopped = workers(server)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        answer = ask(server)
        assert answer.status_code == 200, answer.text
    finally:
        assert not set(stopped) & set(workers(server, "ready"))
    until(lambda: not any(map(alive, stopped)), "they were replaced")
    until(lambda: server.health() == 200, "all is well")


def test_after_engines_that_died_while_loading_a_healthy_one_is_used(server: Server) -> None:
    """The engine dies, and three times its replacement before it is ready, once because it is
    stopped. A request that waits is turned away at the third, and /health agrees."""
    end_engine(server, "ready")
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(server)))
    waiting.start()
    end_engine(server, "loading", signal.SIGSTOP)
    end_engine(server, "loading")
    end_engine(server, "loading")
    waiting.join()
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "engine_unavailable"
    assert server.health() == 503
    assert ask(server).status_code == 503
    until(lambda: server.health() == 200, "a healthy engine")
    assert ask(server).status_code == 200


def test_a_request_that_no_engine_had_survives_two_that_died_while_loading() -> None:
    """Also the worker dies while it opens, a client that goes away meanwhile takes nothing with
    it, and the server was started without standard streams."""
    impatient = httpx.Timeout(PATIENCE, read=0.3)
    server = Server("--workers", "1", first="exec 0<&- 1>&- 2>&-")
    try:
        until(lambda: server.health() == 503, "it listens")
        with pytest.raises(httpx.ReadTimeout):
            server.http.post("/v1/completions", json=HELLO, timeout=impatient)
        kill(until(lambda: workers(server, "opening"), "a worker opens")[0])
        end_engine(server, "loading")
        answers: list[httpx.Response] = []
        waiting = threading.Thread(target=lambda: answers.append(ask(server)))
        waiting.start()
        end_engine(server, "loading")
        waiting.join()
        assert answers[0].status_code == 200, answers[0].text
        until(lambda: server.health() == 200, "all is well")
        front = Path(f"/proc/{server.process.pid}/fd")
        if front.exists():
            assert {str((front / str(it)).readlink()) for it in range(3)} == {os.devnull}
        assert server.stop() == 0
    finally:
        server.close()


def test_ctrl_c_while_a_model_is_loaded_ends_at_once() -> None:
    """As a terminal sends it, to the whole group. Who waits is told; nothing is left, and nothing
    said of it."""
    server = Server(*FEW, "--drain-seconds", "600", start_new_session=True)
    try:
        until(lambda: server.health() == 503, "it listens")
        waiting = started(server, "a", 2)
        until(lambda: "loading weights" in server.log, "the engine loads")
        kin = children(server.process.pid)
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(PATIENCE) == 130
        assert b"shutting_down" in waiting.makefile("rb").read()
        until(lambda: not any(map(alive, kin)), "all are gone")
        assert "Traceback" not in server.log
    finally:
        server.close()


def test_a_template_that_never_ends_is_told_at_once(tmp_path: Path) -> None:
    """The control: the same model with its own template is what all tests here serve."""
    path = Path(shutil.copytree(TINY, tmp_path / "endless"))
    loops = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
    (path / "chat_template.jinja").write_text(loops)
    server = Server(*FEW, model=str(path))
    try:
        assert server.process.wait(PATIENCE) == 2
        assert "template does not come to an end" in server.log
    finally:
        server.close()


def test_what_a_drain_leaves_is_told_and_nothing_is_raised(server: Server) -> None:
    """A reply that runs, a request that is being prepared, and half of one. `server` ends here."""
    running = started(server, "a", 20_000)
    until(lambda: server.status()["running"] == 1, "it runs")
    for pid in workers(server):
        os.kill(pid, signal.SIGSTOP)
    busy = started(server, "a", 2)
    until(lambda: workers(server, "busy"), "it is being prepared")
    half = started(server, "a", 2, cut=5)
    assert server.stop() == 0
    assert b'"code":"shutting_down"' in running.makefile("rb").read()
    assert busy.makefile("rb").read().startswith(b"HTTP/1.1 503")
    half.close()
    assert "Traceback" not in server.log


def started(server: Server, prompt: str, tokens: int, cut: int = 0) -> socket.socket:
    """A streamed request on a connection of its own, less some of its last bytes."""
    asked = {"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    body = json.dumps(asked).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[: len(body) - cut])
    return sock
