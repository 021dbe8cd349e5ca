"""Removing deletes a model's own folder in the hub's cache, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from bushel.core.checkpoint import is_repo_id
from bushel.core.hub import remove
from bushel.core.hub_errors import HubError
from tests.depth import often
from tests.server.hub.hub_client import PULL, HubOperator
from tests.server.server_process import until

HOSTILE = (
    "..",
    "../hub",
    "a/../../outside",
    "/etc",
    "someone/small/..",
    "someone/small/../../..",
    "someone/../someone",
    "someone--small",
    "models--someone--small",
    "SOMEONE/small",
    "someone/small\x00",
    "someone\\small",
    ".",
    "~",
    "*/*",
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub, for this process."""
    folder = tmp_path / "cache"
    folder.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
    return folder


@pytest.mark.long
def test_a_model_that_is_loaded_or_on_its_way_stays(operator: HubOperator) -> None:
    """Each is a 409 that says which. B78."""
    operator.pulling()
    refused = operator.remove()
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_busy")
    operator.hub.go.set()
    until(lambda: operator.get(PULL)["state"] == "done", "it is here")
    assert operator.ask("POST", "/v1/models/named/load").status_code == 200
    [card] = operator.get("/v1/hub/models")["data"]
    assert (card["served_as"], card["loaded"]) == (["named"], True)
    refused = operator.remove()
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "in_use")
    assert (operator.folder / "snapshots").exists()
    assert operator.ask("POST", "/v1/models/named/unload").status_code == 200
    assert operator.remove().status_code == 200
    names = [card["id"] for card in operator.get("/v1/models")["data"]]
    assert "named" in names  # as it was started: it is downloaded again when somebody asks for it


@pytest.mark.parametrize("model", often(HOSTILE, *HOSTILE[::6]))
def test_no_other_place_is_ever_deleted(operator: HubOperator, model: str) -> None:
    """Whatever is sent for a model's name. B78."""
    operator.folder.mkdir(parents=True, exist_ok=True)
    inside, outside = operator.folder / "kept", operator.home / "outside"
    inside.touch()
    outside.touch()
    refused = operator.ask("DELETE", f"/v1/hub/models/{quote(model, safe='')}")
    assert refused.status_code in (400, 404, 405)
    assert inside.exists()
    assert outside.exists()


def test_links_are_deleted_and_what_they_lead_to_is_not(cache: Path, tmp_path: Path) -> None:
    """A link in a model's folder may point anywhere. B78."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x" * 1000)
    snapshot = cache / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    (snapshot / "weights").symlink_to(outside / "precious")
    (snapshot / "all").symlink_to(outside)
    (snapshot / "own").write_text("y" * 10)
    assert remove("a/b") == 10
    assert list(cache.iterdir()) == []
    assert (outside / "precious").exists()


def test_a_model_whose_folder_is_a_link_is_not_touched(cache: Path, tmp_path: Path) -> None:
    """Somebody keeps it elsewhere. B78."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (cache / "models--a--b").symlink_to(outside)
    with pytest.raises(HubError) as refused:
        remove("a/b")
    assert refused.value.code == "not_deleted"
    assert (outside / "precious").exists()


def test_one_that_runs_by_its_path_stays(cache: Path) -> None:
    """A server may have been started with the folder itself. B78."""
    snapshot = cache / "models--a--b" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    with pytest.raises(HubError) as refused:
        remove("a/b", loaded=[str(snapshot)])
    assert refused.value.code == "in_use"
    assert remove("a/b", loaded=[str(cache / "models--a--bc")]) == 0


def test_control_a_folder_that_is_deleted_blindly_takes_others_along(cache: Path) -> None:
    """The names that are refused would lead out of the cache."""
    escaping = cache / "models--x" / ".." / ".." / cache.name
    assert escaping.resolve() == cache.resolve()
    assert [name for name in HOSTILE if is_repo_id(name)] == ["SOMEONE/small"]


def test_a_model_that_was_pulled_is_served_where_the_server_was_started_so(
    operator: HubOperator,
) -> None:
    """`--downloaded`: it can be asked for at once, and is gone when it is removed. B77."""
    other = "somebody/copy"
    source = operator.hub.folder
    folder = operator.home / "hub" / "models--somebody--copy" / "snapshots" / "1"
    shutil.copytree(source, folder)  # as another program would have brought it
    (folder.parents[1] / "refs").mkdir()
    (folder.parents[1] / "refs" / "main").write_text("1")
    listed = operator.get("/v1/hub/models")
    assert listed["serves_downloads"] is True
    assert [card["served_as"] for card in listed["data"]] == [[other]]
    names = [card["id"] for card in operator.get("/v1/models")["data"]]
    assert names == ["bushel:tiny", "named", other]
    assert operator.get("/v1/status")["models"][other]["state"] == "unloaded"
    assert operator.remove(other).status_code == 200
    names = [card["id"] for card in operator.get("/v1/models")["data"]]
    assert names == ["bushel:tiny", "named"]
