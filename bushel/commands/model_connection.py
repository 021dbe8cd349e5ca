"""Who answers `bushel chat` and `bushel run`: a server that runs, or one that is started for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bushel.commands.own_server import OwnServer, require_model
from bushel.commands.server_client import KEY, URL, ServerClient, ServerError, find_server
from bushel.core import BushelError
from bushel.core.backend import require_backend
from bushel.core.checkpoint import TINY
from bushel.core.hub_folders import cached_models

Tell = Callable[[str], None]
Choose = Callable[[Sequence[str]], str]


@dataclass
class ModelConnection:
    """A server, and the model that is asked there. own: was started for this, and ends with it."""

    client: ServerClient
    model: str
    own: OwnServer | None = None

    def close(self) -> None:
        if self.own is not None:
            self.own.close()

    def served(self) -> list[str]:
        return [str(card["id"]) for card in self.client.models()]


def connect(
    model: str | None, *, url: str | None, key: str | None, tell: Tell, choose: Choose
) -> ModelConnection:
    """tell: hears in a line what is not as one might expect; choose: one of several models on this
    machine. ServerError or BushelError if nobody can answer.
    """
    server = find_server(url, key)
    if server is None:
        return start(model or _on_this_machine(tell, choose), tell)
    try:
        found = _on_server(server, model)
    except ServerError as error:
        if error.status in (401, 403):
            raise ServerError(
                f"{server.url} wants a key: --api-key, or {KEY} in the environment.", error.status
            ) from None
        raise
    if found is not None:
        return ModelConnection(server, found)
    assert model is not None
    if url or os.environ.get(URL):
        served = ", ".join(str(card["id"]) for card in server.models())
        raise BushelError(f"{server.url} does not serve {model}, but {served}.")
    tell(f"{server.url} does not serve {model}: starting it here, for as long as this runs.")
    return start(model, tell)


def _on_server(server: ServerClient, model: str | None) -> str | None:
    """The name to ask for; None if it does not serve that model."""
    if model is not None:
        return model if server.card(model) is not None else None
    cards = server.models()
    return str(next((card for card in cards if card.get("state") == "ready"), cards[0])["id"])


def _on_this_machine(tell: Tell, choose: Choose) -> str:
    models = cached_models()
    if not models:
        tell(f"No model is here yet but {TINY}, a small one: `bushel pull OWNER/NAME` gets others.")
        return TINY
    return models[0] if len(models) == 1 else choose([*models, TINY])


def start(model: str, tell: Tell) -> ModelConnection:
    """A server of its own for a model, once it is loaded."""
    require_backend()
    require_model(model)
    own = OwnServer(model)
    try:
        own.wait()
        [name, *_] = (str(card["id"]) for card in own.client.models())
    except BaseException:
        own.close()
        raise
    return ModelConnection(own.client, name, own)
