"""What can be typed behind `bushel`, read from its argument parser for any shell."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any, Literal

# What a value is: nothing to be known of, a model, a file, a directory, or one of some words.
ValueKind = Literal["none", "any", "model", "file", "folder", "words"]
_BY_METAVAR: dict[str, ValueKind] = {
    "MODEL": "model",
    "NAME=MODEL": "model",
    "FILE": "file",
    "PATH": "file",
    "DIR": "folder",
}
_BRACES = re.compile(r"\{(.+)\}")


@dataclass(frozen=True)
class Word:
    """A flag, or a place for words without one. about: one line; kind: of its value."""

    names: tuple[str, ...]  # of a flag; none for a place
    kind: ValueKind
    choices: tuple[str, ...] = ()
    about: str = ""


@dataclass(frozen=True)
class CommandWords:
    name: str
    about: str
    flags: tuple[Word, ...]
    places: tuple[Word, ...]

    def names(self) -> list[str]:
        return [name for flag in self.flags for name in flag.names]

    @property
    def place(self) -> Word:
        """What words without a flag are; those of all commands are of one kind."""
        return self.places[0] if self.places else Word((), "none")


def command_words(parser: argparse.ArgumentParser) -> list[CommandWords]:
    """All commands in the order of the help; the first one, without a name, is `bushel` itself."""
    [commands] = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    helps = {one.dest: str(one.help) for one in commands._choices_actions}
    own = _words_of("", "", [one for one in parser._actions if one is not commands])
    each = [_words_of(name, helps[name], commands.choices[name]._actions) for name in helps]
    return [own, *each]


def _words_of(name: str, about: str, actions: list[argparse.Action]) -> CommandWords:
    shown = [_word(action) for action in actions if action.help != argparse.SUPPRESS]
    flags = tuple(word for word in shown if word.names)
    return CommandWords(name, about, flags, tuple(word for word in shown if not word.names))


def _word(action: argparse.Action) -> Word:
    about = " ".join(((action.help or "") % {"prog": "bushel"}).split())
    kind, choices = _value(action)
    return Word(tuple(action.option_strings), kind, choices, _short(about))


def _value(action: argparse.Action) -> tuple[ValueKind, tuple[str, ...]]:
    if action.nargs == 0:
        return "none", ()
    metavar: Any = action.metavar
    if isinstance(metavar, str) and (found := _BRACES.fullmatch(metavar)):
        return "words", tuple(found[1].split(","))
    if choices := action.choices or getattr(action.type, "choices", ()):
        return "words", tuple(map(str, choices))
    return _BY_METAVAR.get(str(metavar), "any"), ()


def _short(about: str) -> str:
    """Its first clause, without the default."""
    return re.split(r"[;(]|\. ", about)[0].strip()
