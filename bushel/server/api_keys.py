"""Keys as the command line, the environment and files give them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from bushel.core import BushelError

VARIABLE = "BUSHEL_API_KEY"
OPERATOR_VARIABLE = "BUSHEL_OPERATOR_KEY"


def key(text: str) -> str:
    """An empty key is most often an unset variable, and would leave the server open."""
    if not (text and text.isascii() and text.isprintable() and " " not in text):
        # The key itself is not repeated: this goes to logs.
        raise argparse.ArgumentTypeError("must be printable ASCII without spaces, and not empty")
    return text


def api_keys(given: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[str, ...]:
    unchecked = _of_variable(VARIABLE, environment)
    for path in given.get("key_files", ()):
        try:
            with open(path, encoding="ascii") as file:
                keys = [line.strip() for line in file if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise BushelError(f"--api-key-file {path}: {error}") from None
        unchecked += [(f"--api-key-file {path}", text) for text in keys or [""]]
    return _checked(given.get("keys", ()), unchecked)


def operator_keys(given: Mapping[str, Any], environment: Mapping[str, str]) -> tuple[str, ...]:
    unchecked = _of_variable(OPERATOR_VARIABLE, environment)
    return _checked(given.get("operator_keys", ()), unchecked)


def _of_variable(name: str, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, environment[name])] if name in environment else []


def _checked(flags: Sequence[str], unchecked: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Those of flags have been checked; the others come with the place they were found in."""
    every = list(flags)
    for source, text in unchecked:
        try:
            every.append(key(text))
        except argparse.ArgumentTypeError as error:
            raise BushelError(f"{source}: a key {error}.") from None
    return tuple(dict.fromkeys(every))
