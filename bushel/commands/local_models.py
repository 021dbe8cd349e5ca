"""`bushel list`, `pull` and `rm`: the models of the hub on this machine."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bushel.core import BushelError
from bushel.core.checkpoint import TINY, weight_bytes
from bushel.core.load_progress import size_words

if TYPE_CHECKING:
    from bushel.core.hub import LocalModel

_DAY = 24 * 3600.0


def add(commands: Any) -> None:
    """Adds all three to the sub-commands of a parser."""
    listed: argparse.ArgumentParser = commands.add_parser(
        "list",
        help="models on this machine",
        description="Models that were downloaded from the hub, by Bushel or by others, and that "
        "Bushel can serve. They lie in the hub's cache (HF_HOME says where).",
        epilog="examples:\n  bushel list\n  bushel list --json | jq -r '.models[].name'\n",
    )
    listed.add_argument("--json", action="store_true", help="one JSON object")
    listed.set_defaults(run=_list)
    pulled: argparse.ArgumentParser = commands.add_parser(
        "pull",
        help="download a model",
        description="Downloads a model from the hub, or what is missing of it: whole files that "
        "came before are kept. `bushel serve` does the same when it has to.",
        epilog="examples:\n  bushel pull mlx-community/Qwen3-4B-Instruct-2507-4bit\n",
    )
    pulled.add_argument("model", metavar="MODEL", help="a hub id: owner/name")
    pulled.set_defaults(run=_pull)
    removed: argparse.ArgumentParser = commands.add_parser(
        "rm",
        help="delete a downloaded model",
        description="Deletes a model from the hub's cache. A folder of your own is never touched.",
        epilog="examples:\n  bushel rm mlx-community/Qwen3-4B-Instruct-2507-4bit\n",
    )
    removed.add_argument("model", metavar="MODEL", help="a hub id, as `bushel list` shows it")
    removed.add_argument("--yes", action="store_true", help="do not ask")
    removed.set_defaults(run=_remove)


def _list(options: argparse.Namespace) -> int:
    from bushel.core.hub import on_disk

    found = list(on_disk())
    if options.json:
        models = [{**vars(model), "path": str(model.path)} for model in found]
        print(json.dumps({"models": models}, indent=2))
    else:
        print("\n".join(_table(found)))
    return 0


def _table(found: list[LocalModel]) -> Iterator[str]:
    names = [TINY, *(model.name for model in found)]
    width = max(map(len, names))
    yield f"{'model':{width}}      size   context  kind"
    tiny = size_words(weight_bytes(TINY))
    yield f"{TINY:{width}}  {tiny:>8}    65,536  qwen3_5, sees; comes with Bushel"
    for model in found:
        context = f"{model.context:,}" if model.context else "?"
        kind = f"{model.model_type}{', sees' if model.sees else ''}"
        size = size_words(model.size)
        yield f"{model.name:{width}}  {size:>8} {context:>9}  {kind}; used {_ago(model.used)}"
    if not found:
        yield "Nothing else yet: `bushel pull OWNER/NAME` downloads a model from the hub."


def _ago(when: float) -> str:
    days = int((time.time() - when) // _DAY)
    return "today" if days < 1 else "yesterday" if days == 1 else f"{days} days ago"


def _pull(options: argparse.Namespace) -> int:
    from bushel.core.checkpoint import fetch
    from bushel.core.hub import to_download

    wanted = to_download(options.model)
    wanted.require_room()
    if wanted.files:
        print(f"{options.model}: {wanted.files} files, {size_words(wanted.size)}", flush=True)
    path = fetch(options.model)
    print(f"{options.model} is here: {path}")
    return 0


def _remove(options: argparse.Namespace) -> int:
    from bushel.core.hub import model_folder, on_disk, remove

    model_folder(options.model)  # nobody is asked about what is not there
    if not options.yes:
        sizes = {model.name: model.size for model in on_disk()}
        if not sys.stdin.isatty():
            raise BushelError("rm asks before it deletes: say --yes where nobody can answer.")
        size = f" ({size_words(sizes[options.model])})" if options.model in sizes else ""
        if input(f"Delete {options.model}{size}? [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was deleted.")
            return 1
    freed = remove(options.model)
    print(f"{options.model} is gone: {size_words(freed)} are free again.")
    return 0
