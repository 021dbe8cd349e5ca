"""Models that cannot be loaded, that are left alone, and servers that share a machine (B73)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import bushel
from bushel.server.errors import ApiError
from tests.server import scripted_service as scripted
from tests.server.scripted_service import options, playing, said
from tests.server.server_process import FEW, PATIENCE, Server, alive, serving, until

TINY = Path(str(bushel.__file__)).parent / "tiny"
KEYS = ("--api-key", "client", "--operator-key", "operator")
CLIENT, OPERATOR = ({"authorization": f"Bearer {key}"} for key in ("client", "operator"))
HELLO = {"prompt": "a", "max_tokens": 2, "temperature": 0}


def ask(server: Server, model: str, **more: Any) -> httpx.Response:
    asked = {**HELLO, "model": model, **more}
    return server.http.post("/v1/completions", json=asked, headers=CLIENT)


def card(server: Server, model: str) -> dict[str, Any]:
    reply = server.http.get(f"/v1/models/{model}", headers=CLIENT)
    return dict(reply.raise_for_status().json())


def claims(runtime: Path) -> list[dict[str, Any]]:
    files = [path for path in (runtime / "claims").iterdir() if path.name != "lock"]
    return [json.loads(path.read_text()) for path in files]


def altered(folder: Path, name: str, **config: Any) -> Path:
    """A copy of the small model with something else in its config."""
    path = Path(shutil.copytree(TINY, folder / name))
    told = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**told, **config}))
    return path


def enormous(folder: Path) -> Path:
    """A checkpoint whose header speaks of weights that no machine holds, and that are not there."""
    path = altered(folder, "enormous")
    shape = [1 << 20, 1 << 20]
    tensor = {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 << 40]}
    header = json.dumps({"model.weight": tensor}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("loading")
    shutil.copytree(TINY, folder / "good")
    altered(folder, "broken", model_type="no-such-family")
    enormous(folder)
    options = (*FEW, *KEYS, "--keep-alive", "2", "--memory-limit-gb", "1.3")
    with serving(*options, model=str(folder)) as server:
        yield server


@pytest.mark.long
def test_one_that_fails_to_load_gives_each_who_waits_one_error_and_others_do_not_notice(
    server: Server,
) -> None:
    """Nothing that clients are told names a folder; a later request tries again."""
    answers: list[httpx.Response] = []

    def client(model: str) -> None:
        asked = {**HELLO, "model": model}
        url = f"{server.url}/v1/completions"
        answers.append(httpx.post(url, json=asked, headers=CLIENT, timeout=PATIENCE))

    names = ["broken", "good", "broken", "good"]
    threads = [threading.Thread(target=client, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(it.status_code for it in answers) == [200, 200, 503, 503]
    for refused in (it for it in answers if it.status_code == 503):
        assert refused.json()["error"]["code"] == "model_load_failed"
        assert "/" not in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
    told = card(server, "broken")
    assert (told["state"], told["memory_bytes"]) == ("failed", 0)
    assert told["reason"]
    assert server.health() == 200
    tried = server.log.count("broken is being loaded")
    until(lambda: ask(server, "broken").status_code == 503, "it is tried again")
    until(lambda: server.log.count("broken is being loaded") > tried, "it was")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_one_that_is_too_large_is_refused_before_its_weights_are_read(
    server: Server, path: str
) -> None:
    asked = {"model": "enormous", "max_tokens": 2, "messages": [{"role": "user", "content": "a"}]}
    refused = server.http.post(path, json=asked, headers=CLIENT)
    assert refused.status_code == 503
    assert "needs 4398.05 GB for its weights alone" in refused.text
    assert "engine of enormous" not in server.log


def test_an_idle_one_is_unloaded_and_its_memory_is_back(server: Server) -> None:
    first = ask(server, "good").json()["choices"]
    told = server.http.get("/v1/status?model=good", headers=OPERATOR).json()
    pid = told["engine"]["pid"]
    assert card(server, "good")["memory_bytes"] > 0
    until(lambda: card(server, "good")["state"] == "unloaded", "nobody asks for it")
    assert not alive(pid)
    assert claims(server.runtime) == []
    assert card(server, "good")["memory_bytes"] == 0
    assert ask(server, "good").json()["choices"] == first


def test_only_an_operator_loads_and_unloads(server: Server) -> None:
    for act in ("load", "unload", "pin", "unpin"):
        refused = server.http.post(f"/v1/models/good/{act}", headers=CLIENT)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "operator_only")
        assert server.http.post(f"/v1/models/good/{act}").status_code == 401
    loaded = server.http.post("/v1/models/good/load", headers=OPERATOR)
    assert loaded.json()["state"] == "ready"
    failed = server.http.post("/v1/models/enormous/load", headers=OPERATOR)
    assert (failed.status_code, failed.json()["error"]["code"]) == (503, "model_load_failed")


# -- streams that wait --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_that_waits_for_its_model_is_kept_alive(
    path: str, asked: dict[str, Any], fails: bool
) -> None:
    """Comments come first; then all of the reply, or the one error in the API's own form. B54."""
    step = ApiError(503, "No.", code="model_load_failed") if fails else [said("Hi", finish="stop")]

    class Slow(scripted.Service):
        async def open(self, job: Any, wake: Any) -> Any:
            await asyncio.sleep(0.1)
            if isinstance(step, ApiError):
                raise step
            return await super().open(job, wake)

    service = Slow(playing(step), options(keepalive_seconds=0.02), loading=True)
    reply = scripted.ask(service, "POST", path, json={**asked, "stream": True})
    assert reply.status_code == 200
    assert reply.text.startswith(": keepalive\n\n: keepalive\n\n")
    rest = reply.text.replace(": keepalive\n\n", "")
    assert ("No." in rest) == fails
    assert ('"Hi"' in rest) != fails
    waits = Slow(playing(step), options(keepalive_seconds=0.02))  # the control: it is loaded
    plain = scripted.ask(waits, "POST", path, json={**asked, "stream": True})
    assert plain.status_code == (503 if fails else 200)
    assert not plain.text.startswith(":")


# -- servers that share a machine ---------------------------------------------------------------


def limit(server: Server) -> int:
    return int(server.status()["engine"]["memory"]["claimed_bytes"])


@pytest.mark.long
def test_two_servers_on_one_machine_together_stay_under_its_limit(tmp_path: Path) -> None:
    """The first gives half of what it had back while the second one starts, and gets it again
    when that one is killed. The control: a server that sees nobody else takes all. B73."""
    with serving(*FEW, runtime=tmp_path) as first:
        whole = limit(first)
        assert claims(tmp_path)[0]["granted"] == whole
        with serving(*FEW, runtime=tmp_path) as second:
            both = until(lambda: limit(first) + limit(second) <= whole, "they share")
            assert both
            until(lambda: sum(it["granted"] for it in claims(tmp_path)) <= whole, "it is told")
            assert abs(limit(first) - limit(second)) < whole // 10
            assert first.http.post("/v1/completions", json=HELLO).status_code == 200
            assert second.http.post("/v1/completions", json=HELLO).status_code == 200
            with serving(*FEW) as apart:
                assert limit(apart) == whole
            os.kill(second.process.pid, signal.SIGKILL)
            until(lambda: limit(first) == whole, "the first one has all of it again")
        assert len(claims(tmp_path)) == 1
