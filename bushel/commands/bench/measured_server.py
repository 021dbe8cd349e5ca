"""The server that is measured: one that runs, or one that is started for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bushel.commands.bench.http_stream import HttpTarget
from bushel.commands.own_server import OwnServer, require_model
from bushel.commands.server_client import ServerClient, ServerError, find_server, own_key
from bushel.core import BushelError


@dataclass(frozen=True)
class MeasuredServer:
    to: HttpTarget
    model: str
    says: dict[str, Any]  # of itself; empty if it is another's

    def tokens(self, prompt: str) -> int | None:
        """Of a prompt with its template; None if it does not count them."""
        messages = [{"role": "user", "content": prompt}]
        client = ServerClient(self.to.url, self.to.key)
        try:
            counted = client.post("/tokenize", {"model": self.model, "messages": messages})
            return int(counted["count"])
        except ServerError as error:
            if error.status in (400, 404, 405, 422, 501):
                return None
            raise
        except (KeyError, TypeError):
            return None


@contextlib.contextmanager
def measured_server(
    model: str | None,
    url: str | None,
    key: str | None,
    flags: Sequence[str],
) -> Iterator[MeasuredServer]:
    """A model without an address gets a server of its own."""
    if model is None or url is not None:
        if flags:
            raise BushelError("Flags behind -- are for a server that bench starts, without --url.")
        yield _running(model, url, key)
        return
    require_model(model)
    own = OwnServer(model, flags)
    try:
        own.wait()
        yield _seen(own.client, own.client.models()[0]["id"])
    finally:
        own.close()


def _running(model: str | None, url: str | None, key: str | None) -> MeasuredServer:
    if url is not None:  # it may be somebody else's, without /health
        client = ServerClient(url, key or own_key())
    else:
        found = find_server(None, key)
        if found is None:
            raise BushelError("No server runs here. Name a MODEL to measure, or a --url.")
        client = found
    return _seen(client, model or _only_model(client))


def _only_model(client: ServerClient) -> str:
    try:
        names = [str(card["id"]) for card in client.models()]
    except (KeyError, TypeError):  # not what others say, either
        names = []
    if not names:
        raise BushelError(f"{client.url} names no model. Name one: bushel bench NAME --url …")
    if len(names) > 1:
        listed = ", ".join(names)
        raise BushelError(f"The server has several models: {listed}. Choose: bench NAME --url …")
    return names[0]


def _seen(client: ServerClient, model: str) -> MeasuredServer:
    says: dict[str, Any] = {}
    with contextlib.suppress(ServerError, KeyError, TypeError):
        says["version"] = client.get("/version")["version"]
    return MeasuredServer(HttpTarget(client.url, client.key), model, says)
