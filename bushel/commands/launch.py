"""`bushel launch CLIENT`: an agent, set up for the server that runs."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from typing import Any
from urllib.parse import quote

from bushel.commands.agent_clients import (
    AGENT_CLIENTS,
    KEY_VARIABLE,
    NO_KEY,
    AgentClient,
    ClientSettings,
    Endpoint,
)
from bushel.commands.server_client import ServerClient, ServerError, find_server
from bushel.core import BushelError
from bushel.core.held_files import held_folder
from bushel.core.terminal_line import TerminalLine, is_terminal

_EXAMPLES = """\
examples:
  bushel launch claude                      Claude Code, on the model that is served
  bushel launch codex --model NAME          ... of several
  bushel launch opencode -- run "Add tests" what stands behind -- is the client's own
  bushel launch claude --print              the command, to copy or to put into a script

Your own settings of a client stay as they are. It gets variables, flags and perhaps a small file in
Bushel's cache, for this one run, and all else as you have set it up.
"""


def add(commands: Any) -> None:
    """Adds it to the sub-commands of a parser."""
    titles = ", ".join(f"{name} ({client.title})" for name, client in AGENT_CLIENTS.items())
    parser: argparse.ArgumentParser = commands.add_parser(
        "launch",
        help="start Claude Code, Codex or another agent on the running server",
        description=f"Starts an agent that asks your server: {titles}. It is told the address, "
        "the key, the model and its real context, and to wait while a long prompt is read.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="bushel launch CLIENT [options] [-- ARGUMENTS ...]",
    )
    parser.add_argument("client", metavar="CLIENT", choices=AGENT_CLIENTS, help=titles)
    parser.add_argument(
        "--url", help="the server's address; default: BUSHEL_URL, or the one that runs here"
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"the server's key; default: {KEY_VARIABLE}"
    )
    parser.add_argument(
        "--model", "-m", metavar="NAME", help="which one, if the server has several"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--print",
        action="store_true",
        dest="shown",
        help="show the command instead; the key stays hidden",
    )
    shown.add_argument("--json", action="store_true", help="the same as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Does not return if the client starts: this process becomes the client."""
    client = AGENT_CLIENTS[options.client]
    server = find_server(options.url, options.api_key)
    if server is None:
        raise BushelError(
            "No server runs here. Start one in another terminal: bushel serve MODEL. "
            "One elsewhere is named with --url."
        )
    to = _endpoint(server, options.model)
    _warn_of_small_context(client, to)
    settings = client.settings(to)
    for path, text in settings.files.items():
        path.write_text(text)
    command = [client.program, *settings.arguments, *options.passed_on]
    if options.shown:
        print(_shell_words(settings, command, to))
        return 0
    if options.json:
        print(json.dumps(_as_json(settings, command, to), indent=2))
        return 0
    return _become(client, settings, command, to)


def _endpoint(server: ServerClient, wanted: str | None) -> Endpoint:
    try:
        card = _named(server, wanted) if wanted else _chosen(server.models())
        context = card.get("max_model_len") or _context_once_loaded(server, card["id"])
    except ServerError as error:
        if error.status != 401:
            raise
        raise BushelError(f"{error} Give it with --api-key, or in {KEY_VARIABLE}.") from error
    return Endpoint(server.url, card["id"], held_folder("launch"), server.key, context)


def _named(server: ServerClient, wanted: str) -> dict[str, Any]:
    """By any of a model's names: patterns are in no list."""
    try:
        card: dict[str, Any] = server.get(f"/v1/models/{quote(wanted)}")
    except ServerError as error:
        if error.status != 404:
            raise
        names = ", ".join(card["id"] for card in server.models())
        raise BushelError(f"The server has no model {wanted}. It has: {names}.") from error
    return {**card, "id": wanted}


def _chosen(models: list[dict[str, Any]]) -> dict[str, Any]:
    if not models:
        raise BushelError("The server has no model.")
    if len(models) == 1:
        return models[0]
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        names = ", ".join(card["id"] for card in models)
        raise BushelError(f"The server has several models: {names}. Choose one with --model.")
    return _asked(models)


def _asked(models: list[dict[str, Any]]) -> dict[str, Any]:
    for number, card in enumerate(models, 1):
        print(f"  {number}  {card['id']}", file=sys.stderr)
    print(f"Which model? [1-{len(models)}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    if answer.isdecimal() and 1 <= int(answer) <= len(models):
        return models[int(answer) - 1]
    raise BushelError(f"There is no model {answer or 'without a number'}.")


def _context_once_loaded(server: ServerClient, model: str) -> int | None:
    """A model's context is known once it is loaded, which its first request does anyway."""
    line = TerminalLine()
    line.show(f"{model} is being loaded …")
    try:
        counted = server.post("/tokenize", {"model": model, "prompt": "a"})
    except ServerError as error:
        if error.status not in (404, 405):
            raise
        return None
    finally:
        line.show("")
    context = counted.get("max_model_len")
    return int(context) if context else None


def _warn_of_small_context(client: AgentClient, to: Endpoint) -> None:
    if to.context is None or to.context >= 2 * client.prompt:
        return
    print(
        f"bushel: {to.model} has a context of {to.context:,} tokens, which is little: "
        f"{client.title} sends about {client.prompt:,} before you have said anything.",
        file=sys.stderr,
    )


def _become(client: AgentClient, settings: ClientSettings, command: list[str], to: Endpoint) -> int:
    program = shutil.which(client.program)
    if program is None:
        raise BushelError(f"{client.title} is not installed: {client.install}")
    environment = {name: text for name, text in os.environ.items() if name not in settings.unset}
    environment |= settings.environment
    if settings.key_variable:
        environment[settings.key_variable] = to.key or NO_KEY
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, command, environment)
    except OSError as error:
        raise BushelError(f"{program} cannot be started: {error.strerror}.") from error


def _shell_words(settings: ClientSettings, command: list[str], to: Endpoint) -> str:
    """One line for a shell, in which the key is taken from its variable."""
    words = ["env", *(word for name in settings.unset for word in ("-u", name))]
    if settings.key_variable:
        key = f'"${KEY_VARIABLE}"' if to.key else NO_KEY
        words.append(f"{settings.key_variable}={key}")
    words += (f"{name}={shlex.quote(text)}" for name, text in settings.environment.items())
    return " ".join([*(words if len(words) > 1 else []), shlex.join(command)])


def _as_json(settings: ClientSettings, command: list[str], to: Endpoint) -> dict[str, Any]:
    return {
        "url": to.url,
        "model": to.model,
        "context": to.context,
        "command": command,
        "environment": settings.environment,
        "key_variable": settings.key_variable,
        "unset": list(settings.unset),
        "files": [str(path) for path in settings.files],
    }
