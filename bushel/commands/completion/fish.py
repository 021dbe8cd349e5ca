"""Completion for fish, with what each flag does."""

from __future__ import annotations

from collections.abc import Iterator

from bushel.commands.completion.command_words import CommandWords, Word

_HEAD = """\
# Completion of bushel for fish:  bushel completion fish > ~/.config/fish/completions/bushel.fish
function __bushel_models
    bushel completion models 2>/dev/null
end
complete -c bushel -f
"""


def script(commands: list[CommandWords]) -> str:
    return _HEAD + "\n".join(_lines(commands)) + "\n"


def _lines(commands: list[CommandWords]) -> Iterator[str]:
    own, *rest = commands
    for flag in own.flags:
        yield _flag("__fish_use_subcommand", flag)
    for command in rest:
        about = _quoted(command.about)
        yield f"complete -c bushel -n __fish_use_subcommand -a {command.name} -d {about}"
    for command in rest:
        here = f"__fish_seen_subcommand_from {command.name}"
        for flag in command.flags:
            yield _flag(here, flag)
        if values := _values(command.place):
            yield f"complete -c bushel -n {_quoted(here)} {values}"


def _flag(condition: str, flag: Word) -> str:
    names = " ".join(
        f"-l {name.lstrip('-')}" if name.startswith("--") else f"-s {name.lstrip('-')}"
        for name in flag.names
    )
    value = "" if flag.kind == "none" else f" -r {_values(flag)}".rstrip()
    about = _quoted(flag.about)
    return f"complete -c bushel -n {_quoted(condition)} {names}{value} -d {about}"


def _values(word: Word) -> str:
    if word.kind == "words":
        return f"-f -a {_quoted(' '.join(word.choices))}"
    return {
        "model": "-f -a '(__bushel_models) (__fish_complete_directories)'",
        "file": "-F",
        "folder": "-f -a '(__fish_complete_directories)'",
    }.get(word.kind, "")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
