"""`bushel` alone: what can be done, what runs, what is here, and what to do next.

Quick wherever it is asked, and it never waits for a server that does not answer.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bushel.commands.server_client import ServerClient, ServerError, own_key, usual_url
from bushel.commands.terminal.terminal_text import Ink, printable
from bushel.core import BackendError, BushelError
from bushel.core.backend import require_backend
from bushel.core.checkpoint import TINY
from bushel.core.hub_folders import cached_models
from bushel.core.running_servers import running_servers

_WAIT = 1.0  # seconds for all servers together
_EXAMPLE = "mlx-community/Qwen3-4B-Instruct-2507-4bit"
_SHOWN = 3  # models by name


@dataclass(frozen=True)
class SeenServer:
    """state: ready, loading, locked (it wants another key) or silent. models: by name, the state of
    each.
    """

    url: str
    state: str
    models: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Overview:
    version: str
    commands: dict[str, str]  # what each does
    backend: str | None  # why nothing can be computed here, and what to install
    servers: tuple[SeenServer, ...]
    models: tuple[str, ...]  # on this machine, beside the one that comes with Bushel

    @property
    def next_step(self) -> str:
        if self.backend is not None:
            return self.backend
        if self.servers or self.models:
            return "bushel chat"
        return f"bushel chat, with a small model; bushel pull {_EXAMPLE} gets a larger one"


def overview(version: str, commands: Mapping[str, str]) -> Overview:
    try:
        require_backend()
        backend = None
    except BackendError as error:
        backend = str(error)
    return Overview(version, dict(commands), backend, seen_servers(), tuple(cached_models()))


def seen_servers() -> tuple[SeenServer, ...]:
    """Of this user on this machine, the newest first, and whoever is at the usual address."""
    try:
        urls = [record.url for record in running_servers()]
    except BushelError:  # there is no place where they could say so
        urls = []
    seen: dict[str, SeenServer | None] = {url: SeenServer(url, "silent") for url in urls}
    seen.setdefault(usual_url(), None)

    def look(url: str) -> None:
        found = _seen(url)
        if found is not None and (found.models or seen[url] is not None):  # others lock doors, too
            seen[url] = found

    threads = [threading.Thread(target=look, args=(url,), daemon=True) for url in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_WAIT)
    return tuple(server for server in tuple(seen.values()) if server is not None)


def _seen(url: str) -> SeenServer | None:
    """None if no Bushel answers there."""
    try:
        cards = ServerClient(url, own_key(), patience=_WAIT, connect=_WAIT).models()
    except ServerError as error:
        return SeenServer(url, "locked") if error.status in (401, 403) else None
    except (KeyError, TypeError, AttributeError):  # somebody else's
        return None
    if not all(card.get("owned_by") == "bushel" for card in cards):
        return None
    states = {str(card["id"]): str(card["state"]) for card in cards}
    busy = "loading" in states.values() and "ready" not in states.values()
    return SeenServer(url, "loading" if busy else "ready", states)


def greet(version: str, commands: Mapping[str, str], *, as_json: bool) -> int:
    """Returns the exit code."""
    found = overview(version, commands)
    if as_json:
        print(json.dumps({**asdict(found), "next": found.next_step}, indent=2))
    else:
        print("\n".join(_lines(found, Ink(sys.stdout))))
    return 0


def _lines(found: Overview, ink: Ink) -> Iterator[str]:
    yield f"{ink.bold('Bushel')} {found.version}"
    yield ""
    for name, about in found.commands.items():
        yield f"  bushel {ink.bold(f'{name:<10}')} {about}"
    yield ""
    for at, server in enumerate(found.servers):
        yield f"{'' if at else 'running':<8} {ink.green(server.url)}  {_serving(server)}"
    if not found.servers:
        yield f"{'running':<8} {ink.dim('no server')}"
    yield f"{'models':<8} {_models(found.models)}"
    yield f"{'next':<8} {ink.bold(found.next_step)}"


def _serving(server: SeenServer) -> str:
    if not server.models:
        return {"locked": "wants a key: BUSHEL_API_KEY", "silent": "does not answer"}[server.state]
    names = [
        name if state == "ready" else f"{name} ({state})" for name, state in server.models.items()
    ]
    return printable(_some(names))


def _models(models: Sequence[str]) -> str:
    if not models:
        return f"{TINY}, which comes with Bushel"
    return f"{len(models)} on this machine: {printable(_some(models))} (bushel list)"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def command_helps(subparsers: Any) -> dict[str, str]:
    """Of a parser's sub-commands, in the order of its help."""
    return {action.dest: action.help for action in subparsers._choices_actions}
