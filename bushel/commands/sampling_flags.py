"""Flags of `bushel chat` and `bushel run` that say who answers, and how tokens are chosen."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from bushel.commands.server_client import KEY, URL
from bushel.core.params import BOUNDS

# What people set by hand; the names of request fields.
SETTINGS = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "repetition_penalty")
_HELP = {
    "temperature": "how freely it answers; 0 takes the likeliest token",
    "top_p": "only the likeliest tokens that together have this share",
    "top_k": "only so many of the likeliest tokens",
    "min_p": "only tokens at least this likely, beside the likeliest",
    "max_tokens": "of the answer (default: as the server has it)",
    "seed": "the same one gives the same answer",
    "repetition_penalty": "above 1 makes what was said already less likely",
}
_SHOWN = ("temperature", "top_p", "max_tokens", "seed")  # the others are for /set


def read_setting(name: str, text: str) -> float:
    """ValueError that tells the rule."""
    bound = BOUNDS[name]
    try:
        value = int(text) if bound.whole else float(text)
    except ValueError:
        value = math.nan
    if not bound.low <= value <= bound.high:
        raise ValueError(f"{name} must be {bound.rule}, not {text!r}")
    return value


def _reader(name: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            return read_setting(name, text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def add(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("who answers")
    where.add_argument(
        "--url",
        metavar="URL",
        help=f"a server (default: ${URL}, or one that runs on this machine, or one of its own)",
    )
    where.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"of that server; {KEY} in the environment is better, since others can see this one",
    )
    how = parser.add_argument_group("how it answers")
    how.add_argument("--system", metavar="TEXT", help="what it is told before all else")
    how.add_argument(
        "--image", metavar="PATH", action="append", default=[], help="a picture; may be repeated"
    )
    for name in _SHOWN:
        flag = f"--{name.replace('_', '-')}"
        metavar = "N" if BOUNDS[name].whole else "X"
        how.add_argument(flag, type=_reader(name), metavar=metavar, help=_HELP[name])
    how.add_argument(
        "--no-thinking",
        action="store_true",
        help="answer at once, where the model's template can switch thoughts off",
    )


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Fields of a request; those that were not given are left to the server."""
    given = {name: getattr(options, name) for name in _SHOWN}
    fields = {name: value for name, value in given.items() if value is not None}
    return {**fields, "enable_thinking": False} if options.no_thinking else fields
