"""Operators pull, inspect and remove models over HTTP; what is cut off goes on."""

from __future__ import annotations

import asyncio
import errno
import signal
from pathlib import Path
from typing import Any

import ollama
import pytest

from bushel.core.hub import Download
from bushel.core.hub_errors import HubError, hub_error
from bushel.server.errors import ApiError
from bushel.server.hub import pulls as pulls_module
from bushel.server.hub.pulls import AT_ONCE, MOST, Pulls
from tests.depth import often, one_in
from tests.server.hub.hub_client import (
    ENDED,
    KEYS,
    MODEL,
    OPERATOR,
    PULL,
    USER,
    HubOperator,
)
from tests.server.server_process import FEW, PATIENCE, alive, children, serving, until

WEIGHTS = "model.safetensors"
NO_IDS = (
    *("small", "../etc", "a/../b", "/etc/passwd", "~/x"),
    *("a/b/c", "a--b/c", "a/b\n", ".a/b", "ä/b"),
)


@pytest.mark.long
def test_ollamas_client_pulls_with_progress(operator: HubOperator) -> None:
    """Line by line, by the same rules: an operator's key, and a model of the hub. B77."""
    url, headers = operator.server.url, {"authorization": f"Bearer {OPERATOR}"}
    client = ollama.Client(host=url, headers=headers, timeout=PATIENCE)
    operator.hub.go.clear()
    told = []
    for line in client.pull(f"hf.co/{MODEL}:latest", stream=True):
        told.append(line)
        if line.completed:  # all but the weights
            operator.hub.go.set()
    assert [told[0].status, told[-1].status] == ["pulling manifest", "success"]
    assert told[-2].completed == told[-2].total == operator.get(PULL)["bytes_total"]
    assert operator.on_disk() == [MODEL]
    assert client.pull(MODEL).status == "success"  # nothing is missing
    for model, status in (("someone/else", 404), ("no id", 400)):
        with pytest.raises(ollama.ResponseError) as refused:
            client.pull(model)
        assert refused.value.status_code == status
    with pytest.raises(ollama.ResponseError, match="operator"):
        ollama.Client(host=url, headers={"authorization": f"Bearer {USER}"}).pull(MODEL)


def test_a_model_is_pulled_with_progress_then_listed_inspected_and_removed(
    operator: HubOperator,
) -> None:
    """From nothing to a model on disk and back, with every step seen. B77."""
    assert operator.on_disk() == []
    operator.pulling()
    card = operator.get(PULL)
    assert (card["state"], card["ended_at"]) == ("running", None)
    assert 0 < card["files_done"] < card["files_total"]
    assert 0 < card["bytes_done"] < card["bytes_total"]
    assert operator.pull().json()["began_at"] == card["began_at"]  # the same one
    assert operator.server.health() == 200
    operator.hub.go.set()
    card = until(
        lambda: (card := operator.get(PULL))["state"] in ENDED and card, "the pull is over"
    )
    assert (card["state"], card["reason"]) == ("done", None)
    assert card["bytes_done"] == card["bytes_total"]
    assert card["files_done"] == card["files_total"]

    [model] = operator.get("/v1/hub/models")["data"]
    assert (model["id"], model["model_type"], model["sees"]) == (MODEL, "qwen3_5", True)
    assert (model["served_as"], model["loaded"]) == (["named"], False)
    assert model["size_bytes"] == card["bytes_total"]
    told = operator.get("/v1/inspection", model=MODEL, rows=2, tokens=1000)
    assert told["layers"] == {"recurrent": 4, "attention": 4}
    assert (told["tools"], told["batching"]) == ("hermes", "rows share a batch")
    assert [(need["rows"], need["tokens"]) for need in told["memory"]] == [(2, 1000)]
    assert str(operator.home) not in str(told)

    gone = operator.remove()
    assert (gone.status_code, gone.json()["deleted"]) == (200, True)
    assert gone.json()["freed_bytes"] >= card["bytes_total"]
    assert not operator.folder.exists()
    assert operator.on_disk() == []
    for words in ("is to be downloaded", "is here", "was removed"):
        operator.server.logged(f"{MODEL} {words}")


@pytest.mark.long
def test_one_that_is_cut_off_twice_keeps_whole_files_and_comes_to_its_end(
    operator: HubOperator,
) -> None:
    """Each time it says why, and what came whole is not sent again. B77."""
    hub = operator.hub
    hub.cut, hub.cut_only = 1000, ".safetensors"
    for _ in range(2):
        card = operator.pulled()
        assert (card["state"], card["code"]) == ("failed", "cut_off")
        assert "was cut off" in card["reason"]
        assert operator.on_disk() == []
        assert operator.partial() == [MODEL]
    small = {name: size for name, size in hub.sent.items() if name != WEIGHTS}
    hub.cut = None
    assert operator.pulled()["state"] == "done"
    assert {name: size for name, size in hub.sent.items() if name != WEIGHTS} == small
    assert all(size == (hub.folder / name).stat().st_size for name, size in small.items())
    assert (operator.on_disk(), operator.partial()) == ([MODEL], [])


def test_one_that_is_cancelled_ends_its_process_and_can_be_asked_for_again(
    operator: HubOperator,
) -> None:
    """Nothing runs on, and the next pull clears up what was left of a file. B77."""
    before = set(children(operator.server.process.pid))
    operator.pulling()
    [child] = set(children(operator.server.process.pid)) - before
    assert operator.ask("DELETE", PULL).json()["state"] == "cancelled"
    assert not alive(child)
    assert operator.partial() == [MODEL]
    operator.hub.go.set()
    assert operator.pulled()["state"] == "done"
    assert list((operator.folder / "blobs").glob("*.incomplete")) == []
    assert operator.ask("DELETE", PULL).json()["state"] == "done"  # forgotten
    assert operator.ask("GET", PULL).status_code == 404
    assert operator.on_disk() == [MODEL]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_that_ends_takes_its_downloads_along_and_the_next_goes_on(
    operator: HubOperator, number: signal.Signals
) -> None:
    """By Ctrl-C or kill -9: no process is left, and whole files are kept. B77."""
    environment = {"HF_ENDPOINT": operator.hub.address, "HF_HOME": str(operator.home)}
    with serving(*FEW, *KEYS, env=environment) as server:
        first = HubOperator(server, operator.hub, operator.home)
        before = set(children(server.process.pid))
        first.pulling()
        [child] = set(children(server.process.pid)) - before
        server.process.send_signal(number)
        server.process.wait(PATIENCE)  # the hub says nothing for as long as that
        until(lambda: not alive(child), "the download's process is gone")
    small = {name: size for name, size in operator.hub.sent.items() if name != WEIGHTS}
    assert operator.partial() == [MODEL]
    operator.hub.go.set()
    assert operator.pulled()["state"] == "done"
    after = {name: size for name, size in operator.hub.sent.items() if name in small}
    assert after == small


def test_a_model_that_the_hub_does_not_give_is_told_in_a_sentence(operator: HubOperator) -> None:
    """Which one, and what to do. B77."""
    card = operator.pulled("someone/else")
    assert (card["state"], card["code"]) == ("failed", "not_found")
    operator.hub.gated = True
    card = operator.pulled()
    assert (card["state"], card["code"]) == ("failed", "gated")
    assert "accept its terms" in card["reason"]
    operator.server.logged(f"{MODEL} was not downloaded: {MODEL} is gated")


def test_what_cannot_be_served_is_not_downloaded(
    operator: HubOperator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "README.txt").write_text("Weights of another kind.")
    monkeypatch.setattr(operator.hub, "folder", tmp_path)
    card = operator.pulled()
    assert (card["state"], card["code"]) == ("failed", "not_a_checkpoint")
    assert operator.hub.sent.total() == 0


@pytest.mark.parametrize(
    ("method", "path"),
    one_in(
        3,
        [
            ("GET", "/v1/hub/models"),
            ("DELETE", f"/v1/hub/models/{MODEL}"),
            ("POST", "/v1/hub/pulls"),
            ("GET", "/v1/hub/pulls"),
            ("GET", PULL),
            ("DELETE", PULL),
            ("GET", f"/v1/inspection?model={MODEL}"),
        ],
    ),
)
def test_nobody_but_an_operator_may(operator: HubOperator, method: str, path: str) -> None:
    """A wrong key is a 401, a user's a 403. B68."""
    body = {"json": {"model": MODEL}} if method == "POST" else {}
    for key, status, code in (
        ("wrong", 401, "invalid_api_key"),
        (USER, 403, "operator_only"),
    ):
        refused = operator.ask(method, path, key, **body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert operator.ask(method, path, OPERATOR, **body).status_code in (200, 202, 404)


@pytest.mark.parametrize(
    "model",
    often(NO_IDS, "../etc", "a--b/c"),
)
def test_what_is_no_id_of_the_hub_is_refused_at_once(operator: HubOperator, model: str) -> None:
    refused = operator.pull(model)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "model"
    assert operator.get("/v1/hub/pulls")["data"] == []


# -- without a server ------------------------------------------------------------------------


def test_a_few_run_at_once_others_wait_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        go = asyncio.Event()

        async def held(*_: Any) -> dict[str, Any]:
            await go.wait()
            return {"size_bytes": 1}

        monkeypatch.setattr(pulls_module, "run_job", held)
        done: list[str] = []
        pulls = Pulls(done.append)
        started = [pulls.start(f"a/{number}") for number in range(MOST)]
        await asyncio.sleep(0)
        states = [pull.state for pull in pulls.all]
        assert states == ["running"] * AT_ONCE + ["waiting"] * (MOST - AT_ONCE)
        with pytest.raises(ApiError) as refused:
            pulls.start("a/more")
        assert refused.value.status == 429
        await pulls.cancel(started[-1])  # one that waits
        go.set()
        await asyncio.gather(*(pull.task for pull in started if pull.task is not None))
        assert [pull.state for pull in pulls.all] == ["done"] * (MOST - 1) + ["cancelled"]
        assert done == [pull.model for pull in started[:-1]]

    asyncio.run(scenario())


def test_a_full_disk_is_told_before_and_on_the_way() -> None:
    with pytest.raises(HubError) as refused:
        Download(1, 2 * 10**9, 10**9, 1, 2 * 10**9).require_room()
    assert (refused.value.code, "2.00 GB" in str(refused.value)) == ("disk_full", True)
    told = hub_error(MODEL, OSError(errno.ENOSPC, "No space left on device", "/somewhere/secret"))
    assert told.code == "disk_full"
    assert "secret" not in str(told)


def test_an_error_that_nobody_knows_is_told_without_folders() -> None:
    told = hub_error(MODEL, RuntimeError("the file /home/somebody/cache/x is odd"))
    assert (told.code, str(told)) == ("failed", f"{MODEL} cannot be downloaded: the file x is odd.")
