"""An operator of a real server whose hub is a stand-in on loopback, with a cache of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from bushel.core.checkpoint import TINY, read_checkpoint
from tests.commands.hub_stand_in import HubStandIn, hub_stand_in
from tests.server.server_process import FEW, Server, serving, until

MODEL = "someone/small"
USER, OPERATOR = "user-key", "operator-key"
KEYS = ("--api-key", USER, "--operator-key", OPERATOR)
PULL = f"/v1/hub/pulls/{MODEL}"
ENDED = ("done", "failed", "cancelled")


class HubOperator:
    def __init__(self, server: Server, hub: HubStandIn, home: Path, key: str = OPERATOR):
        self.server, self.hub, self.home, self._key = server, hub, home, key
        self.folder = home / "hub" / f"models--{MODEL.replace('/', '--')}"

    def ask(self, method: str, path: str, key: str | None = None, **more: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {key or self._key}"}
        return self.server.http.request(method, path, headers=headers, **more)

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        return dict(self.ask("GET", path, params=params).raise_for_status().json())

    def pull(self, model: str = MODEL) -> httpx.Response:
        return self.ask("POST", "/v1/hub/pulls", json={"model": model})

    def pulled(self, model: str = MODEL) -> dict[str, Any]:
        """What came of a pull."""
        assert self.pull(model).status_code == 202

        def ended() -> dict[str, Any] | None:
            card = self.get(f"/v1/hub/pulls/{model}")
            return card if card["state"] in ENDED else None

        return dict(until(ended, f"the pull of {model} ends"))

    def pulling(self) -> None:
        """A pull is on its way, and stays there: the hub holds the rest of the weights back."""
        self.hub.go.clear()
        assert self.pull().status_code == 202

        def waits_for_weights() -> bool:
            card = self.get(PULL)
            return bool(card["files_total"]) and card["files_done"] == card["files_total"] - 1

        until(waits_for_weights, "all but the weights is here")

    def remove(self, model: str = MODEL) -> httpx.Response:
        return self.ask("DELETE", f"/v1/hub/models/{model}")

    def on_disk(self) -> list[str]:
        return [card["id"] for card in self.get("/v1/hub/models")["data"]]

    def partial(self) -> list[str]:
        return [card["id"] for card in self.get("/v1/hub/models")["partial"]]

    def reset(self) -> None:
        """As it was at the start."""
        hub = self.hub
        hub.cut, hub.cut_only, hub.gated, hub.pause = None, "", False, 0.0
        for card in self.get("/v1/hub/pulls")["data"]:
            while self.ask("DELETE", f"/v1/hub/pulls/{card['model']}").status_code == 200:
                pass  # the first may only cancel it
        hub.go.set()
        self.remove()
        hub.sent.clear()


@contextlib.contextmanager
def hub_operator(
    home: Path, *flags: str, model: str | tuple[str, ...] = TINY
) -> Iterator[HubOperator]:
    with hub_stand_in(MODEL, read_checkpoint(TINY).path) as hub:
        environment = {"HF_ENDPOINT": hub.address, "HF_HOME": str(home)}
        with serving(*FEW, *KEYS, *flags, model=model, env=environment) as server:
            yield HubOperator(server, hub, home)
