"""Flags that stand in the environment or in a file instead: the same names, the same rules.

    --max-num-seqs 8        BUSHEL_MAX_NUM_SEQS=8        max-num-seqs = 8, in bushel.toml

A flag wins over a variable, and a variable over the file. Of a flag that may be repeated, the file
has a list, and a variable words between commas; they replace each other and do not add up.
"""

from __future__ import annotations

import argparse
import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bushel.core import BushelError

PREFIX = "BUSHEL_"
FILE = "BUSHEL_CONFIG"
# Variables that are no flags, or are read elsewhere; those of the project's own tests.
_OTHERS = frozenset({FILE, "BUSHEL_API_KEY", "BUSHEL_OPERATOR_KEY", "BUSHEL_DEVICE"})
_OTHERS_TOO = ("BUSHEL_RUNTIME_DIR", "BUSHEL_URL", "BUSHEL_TEST_")
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}
_MODELS = "models"


def own_flags(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """By name without its dashes, those that the help shows; `models` is what has no name."""
    found: dict[str, argparse.Action] = {}
    for action in parser._actions:
        if action.dest == _MODELS and not action.option_strings:
            found[_MODELS] = action
        elif action.help != argparse.SUPPRESS and action.dest not in ("help", "config"):
            found[action.option_strings[0].lstrip("-")] = action
    return found


def variable(flag: str) -> str:
    return PREFIX + flag.upper().replace("-", "_")


def default_file(environment: Mapping[str, str]) -> Path:
    home = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home) / "bushel" / "bushel.toml"


def with_settings(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser, environment: Mapping[str, str]
) -> argparse.Namespace:
    """What flags do not say, as the environment has it, and then the file. BushelError names what
    is wrong, and where.
    """
    flags = own_flags(parser)
    given = vars(arguments)
    named = given.get("config") or environment.get(FILE)
    path = Path(named).expanduser() if named else default_file(environment)
    in_file = _from_file(flags, path) if named or path.is_file() else {}
    return argparse.Namespace(**{**in_file, **_from_environment(flags, environment), **given})


def _from_environment(
    flags: Mapping[str, argparse.Action], environment: Mapping[str, str]
) -> dict[str, Any]:
    names = {variable(flag): flag for flag in flags}
    values: dict[str, Any] = {}
    for name, text in environment.items():
        if not name.startswith(PREFIX) or name in _OTHERS or name.startswith(_OTHERS_TOO):
            continue
        if name not in names:
            raise BushelError(f"{name} in the environment is no setting{_meant(name, names)}.")
        action = flags[names[name]]
        several = _takes_several(action)
        value = [part.strip() for part in text.split(",") if part.strip()] if several else text
        values[action.dest] = _read(action, value, name)
    return values


def _from_file(flags: Mapping[str, argparse.Action], path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BushelError(f"{path} cannot be read: {error}.") from None
    values: dict[str, Any] = {}
    for key, value in content.items():
        flag = key.replace("_", "-")
        if flag not in flags:
            raise BushelError(f"{key} in {path} is no setting{_meant(flag, flags)}.")
        values[flags[flag].dest] = _read(flags[flag], value, f"{key} in {path}")
    return values


def _meant(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}" if near else ""


def _takes_several(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction) or action.dest == _MODELS


def _read(action: argparse.Action, value: Any, where: str) -> Any:
    """As the flag would read it."""
    if isinstance(action, argparse._StoreTrueAction | argparse._StoreFalseAction):
        return _switch(value, where) == action.const
    if not _takes_several(action):
        return _one(action, value, where)
    if not isinstance(value, list):
        value = [value]
    words = [_one(action, item, where) for item in value]
    return [words] if action.nargs == "+" else words


def _switch(value: Any, where: str) -> bool:
    text = str(value).lower()
    if text not in _YES | _NO:
        raise BushelError(f"{where} must be true or false, not {value!r}.")
    return text in _YES


def _one(action: argparse.Action, value: Any, where: str) -> Any:
    if isinstance(value, bool | list | dict) or not isinstance(value, str | int | float):
        raise BushelError(f"{where} must be one value, not {value!r}.")
    read: Callable[[str], Any] = action.type if callable(action.type) else str
    try:
        return read(str(value))
    except argparse.ArgumentTypeError as error:
        raise BushelError(f"{where} {error}.") from None
