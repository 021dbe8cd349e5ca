"""Three models in the memory of two, over HTTP, with real processes (B73)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import bushel
from tests.families import checkpoint_dir
from tests.server.server_process import FEW, PATIENCE, Server, alive, serving, until

TINY = Path(str(bushel.__file__)).parent / "tiny"
FAMILIES = {"tiny": TINY, "plain": checkpoint_dir("llama"), "window": checkpoint_dir("gemma3_text")}
LIMIT = 1_300_000_000  # each needs 0.6 GB at least
PROMPTS = ("Once upon a time", "The miller asked", "What is 3 + 4?")
SECONDS = 8.0
Body = dict[str, Any]


def body(model: str, prompt: str = PROMPTS[0], tokens: int = 6, **more: Any) -> Body:
    fixed = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    return {"model": model, "prompt": prompt, **fixed, **more}


def ask(server: Server, model: str, prompt: str = PROMPTS[0], **more: Any) -> httpx.Response:
    return server.http.post("/v1/completions", json=body(model, prompt, **more))


def text(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["text"])


def card(server: Server, model: str) -> dict[str, Any]:
    return dict(server.http.get(f"/v1/models/{model}").raise_for_status().json())


def of(server: Server, model: str) -> dict[str, Any]:
    return dict(server.status()["models"][model])


def engine(server: Server, model: str) -> int:
    return int(of(server, model)["engine"]["pid"])


def control(server: Server, model: str, act: str) -> httpx.Response:
    return server.http.post(f"/v1/models/{model}/{act}")


def granted(runtime: Path) -> int:
    """Bytes of all claims, as anyone sees them."""
    total = 0
    for path in (runtime / "claims").iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += json.loads(path.read_text() or "{}").get("granted", 0)
    return total


@pytest.fixture(scope="module")
def alone() -> dict[tuple[str, str], str]:
    """What each model says when it is the only one."""
    from bushel import LLM, SamplingParams

    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    said = {}
    for name, path in FAMILIES.items():
        with LLM(str(path)) as llm:
            for prompt in PROMPTS:
                [output] = llm.generate([{"prompt": prompt}], [params])
                assert output.error is None
                said[name, prompt] = output.text
    return said


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    for name, path in FAMILIES.items():
        shutil.copytree(path, folder / name)
    (folder / "none").mkdir()  # no checkpoint, and not served
    options = (
        *("--memory-limit-gb", str(LIMIT / 1e9), "--keep-alive", "never", "--swap-seconds", "1"),
        *("--model-alias", "gpt-*=plain", "--cache-dir", str(folder / "cache")),
    )
    with serving(*FEW, *options, model=str(folder)) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        served: Server = request.getfixturevalue("server")
        assert "Traceback" not in served.log


class Witness(threading.Thread):
    """Looks at claims and engines for as long as it runs."""

    def __init__(self, server: Server):
        super().__init__(daemon=True)
        self.server, self.most_bytes, self.most_engines = server, 0, 0
        self.end = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self.server.url, timeout=PATIENCE) as http:
            while not self.end.is_set():
                self.most_bytes = max(self.most_bytes, granted(self.server.runtime))
                cards = http.get("/v1/models").json()["data"]
                having = [it for it in cards if it["memory_bytes"]]
                self.most_engines = max(self.most_engines, len(having))
                self.end.wait(0.02)


def crowd(server: Server, seconds: float, clients: int) -> list[tuple[str, str, str]]:
    """Everyone asks any model at random; returns (model, prompt, text)."""
    end, said, wrong = time.monotonic() + seconds, [], []

    def client(seed: int) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
            while time.monotonic() < end or seed < len(FAMILIES):
                model = [*FAMILIES][seed % len(FAMILIES)] if seed < 3 else rng.choice([*FAMILIES])
                prompt = rng.choice(PROMPTS)
                reply = http.post("/v1/completions", json=body(model, prompt))
                if reply.status_code != 200:
                    wrong.append(reply.text)
                    return
                said.append((model, prompt, reply.json()["choices"][0]["text"]))
                if time.monotonic() >= end:
                    return

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    return said


def check_crowd(server: Server, alone: dict[tuple[str, str], str], seconds: float) -> None:
    witness = Witness(server)
    witness.start()
    said = crowd(server, seconds, 5)
    witness.end.set()
    witness.join()
    assert {model for model, _, _ in said} == set(FAMILIES)
    assert [it for it in said if it[2] != alone[it[0], it[1]]] == []
    assert 0 < witness.most_bytes <= LIMIT
    assert witness.most_engines == 2
    assert all(of(server, name)["engine"]["restarts"] == 0 for name in FAMILIES)


@pytest.mark.long
def test_three_models_in_the_memory_of_two_serve_everyone(
    server: Server, alone: dict[tuple[str, str], str]
) -> None:
    """Answers are those of each model alone, and nobody waits for ever. B73."""
    assert [it["state"] for it in server.http.get("/v1/models").json()["data"]] == ["unloaded"] * 3
    check_crowd(server, alone, SECONDS)


@pytest.mark.long
def test_two_minutes_of_the_same(server: Server, alone: dict[tuple[str, str], str]) -> None:
    check_crowd(server, alone, 120.0)


def test_names_aliases_and_nothing_else_may_be_asked_for(server: Server) -> None:
    listed = server.http.get("/v1/models").json()["data"]
    assert [it["id"] for it in listed] == sorted(FAMILIES)
    assert text(ask(server, "gpt-5")) == text(ask(server, "plain"))
    assert ask(server, "gpt-5").json()["model"] == "plain"
    messages = [{"role": "user", "content": "Hello"}]
    for path, asked in (
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/chat/completions", {"messages": messages}),
        ("/v1/responses", {"input": "a"}),
        ("/v1/messages", {"messages": messages, "max_tokens": 4}),
    ):
        refused = server.http.post(path, json={"model": "none", **asked})
        assert refused.status_code == 404, path
        shape = refused.json()
        assert (shape["type"] == "error") if path == "/v1/messages" else "code" in shape["error"]
        assert "`none` does not exist" in refused.text
    assert server.http.post("/v1/models/none/load").status_code == 404


@pytest.mark.long
def test_the_death_of_one_engine_is_felt_by_its_model_alone(server: Server) -> None:
    """A stream of the other one goes on to its last token; the log names the one that died.
    B69, B73."""
    for name in ("tiny", "plain"):
        assert control(server, name, "load").json()["state"] == "ready"
    killed, other = engine(server, "plain"), engine(server, "tiny")
    whole = text(ask(server, "tiny", tokens=1500))
    asked = body("tiny", tokens=1500, stream=True)
    pieces: list[str] = []
    with server.http.stream("POST", "/v1/completions", json=asked) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                pieces.append(json.loads(line[6:])["choices"][0]["text"])
                if len(pieces) == 3:
                    os.kill(killed, signal.SIGKILL)
    assert "".join(pieces) == whole
    assert text(ask(server, "plain"))
    assert engine(server, "plain") != killed
    assert engine(server, "tiny") == other
    assert of(server, "tiny")["engine"]["restarts"] == 0
    assert "engine of plain was ended by SIGKILL" in server.logged("was ended by SIGKILL")


@pytest.mark.long
def test_an_engine_that_is_killed_while_it_loads_and_once_more_costs_nobody_a_request(
    server: Server, alone: dict[tuple[str, str], str]
) -> None:
    """The second one dies while the first is being recovered from."""
    control(server, "window", "unload")
    control(server, "plain", "load")
    answers: list[httpx.Response] = []

    def client() -> None:
        answers.append(httpx.post(f"{server.url}/v1/completions", json=asked, timeout=PATIENCE))

    asked = body("window")
    waiting = [threading.Thread(target=client) for _ in range(2)]
    for thread in waiting:
        thread.start()
    seen: set[int] = set()
    while len(seen) < 2:
        pid = until(lambda: loading(server, "window", seen), "an engine loads")
        os.kill(pid, signal.SIGKILL)
        seen.add(pid)
    assert text(ask(server, "plain")) == alone["plain", PROMPTS[0]]
    for thread in waiting:
        thread.join()
    assert [text(it) for it in answers] == [alone["window", PROMPTS[0]]] * 2


def loading(server: Server, model: str, but: set[int]) -> int | None:
    told = of(server, model)["engine"]
    return told["pid"] if told["pid"] not in {None, *but} and not told["ready"] else None


@pytest.mark.long
def test_a_prefix_is_of_one_model_alone_and_waits_on_disk_while_it_is_unloaded(
    server: Server,
) -> None:
    long = "A bushel is a measure for grain, apples and other dry goods. " * 8
    for name in ("plain", "tiny"):  # both fit
        control(server, name, "load")
    first = ask(server, "plain", long).json()["usage"]["prompt_tokens_details"]
    again = ask(server, "plain", long).json()["usage"]["prompt_tokens_details"]
    other = ask(server, "tiny", long).json()["usage"]["prompt_tokens_details"]
    assert (first["cached_tokens"], other["cached_tokens"]) == (0, 0)
    assert again["cached_tokens"] > 50
    pid = engine(server, "plain")
    assert control(server, "plain", "unload").json()["state"] == "unloaded"
    assert not alive(pid)
    back = ask(server, "plain", long).json()["usage"]["prompt_tokens_details"]
    assert back["cached_tokens"] > 50
    cache = server.http.get("/v1/cache", params={"model": "plain"}).json()
    assert cache["disk"]["read"] > 0
    assert not cache["disk"]["off"]


@pytest.mark.long
def test_operators_load_unload_and_pin(server: Server) -> None:
    """Whoever is pinned stays, and whoever does not fit beside them is told so."""
    for name in ("tiny", "plain"):
        pinned = control(server, name, "pin").json()
        assert (pinned["state"], pinned["pinned"]) == ("ready", True)
    refused = control(server, "tiny", "unload")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_pinned")
    crowded = ask(server, "window")
    assert (crowded.status_code, crowded.json()["error"]["code"]) == (503, "model_load_failed")
    assert card(server, "window")["state"] == "failed"
    for name in ("tiny", "plain"):
        assert control(server, name, "unpin").json()["pinned"] is False
    assert text(ask(server, "window"))


@pytest.mark.long
def test_one_with_requests_is_not_unloaded(server: Server) -> None:
    asked = body("tiny", tokens=3000, stream=True)
    with server.http.stream("POST", "/v1/completions", json=asked) as stream:
        lines = stream.iter_lines()
        next(lines)
        refused = control(server, "tiny", "unload")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_busy")


def test_metrics_status_and_log_say_which_model(server: Server) -> None:
    """The log of each that starts, too. B69."""
    for name in FAMILIES:
        text(ask(server, name))
    shown = server.http.get("/metrics").text
    for name in FAMILIES:
        assert f'vllm:generation_tokens_total{{model_name="{name}"}}' in shown
        assert f'bushel:model_loads_total{{model_name="{name}"}}' in shown
        assert server.logged(f"engine of {name}: loading weights")
    heads = [line for line in shown.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len({*heads})
    samples = [line.rpartition(" ")[0] for line in shown.splitlines() if line[:1] != "#"]
    assert len(samples) == len({*samples})
    status = server.status()
    assert status["memory"]["granted_bytes"] <= status["memory"]["limit_bytes"] == LIMIT
    assert {name: it["model"] for name, it in status["models"].items()} == {
        name: name for name in FAMILIES
    }
