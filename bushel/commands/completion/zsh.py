"""Completion for zsh, with what each flag does."""

from __future__ import annotations

from collections.abc import Iterator

from bushel.commands.completion.command_words import CommandWords, Word

_HEAD = """\
#compdef bushel
# Completion of bushel for zsh. In ~/.zshrc, behind compinit:  eval "$(bushel completion zsh)"
_bushel_models() {
    local -a models
    models=(${(f)"$(bushel completion models 2>/dev/null)"})
    compadd -a models
    _files -/
}
_bushel() {
    local context state line
    typeset -A opt_args
    _arguments -C \\
"""


def script(commands: list[CommandWords]) -> str:
    return _HEAD + "\n".join(_lines(commands)) + "\n"


def _lines(commands: list[CommandWords]) -> Iterator[str]:
    own, *rest = commands
    for flag in own.flags:
        yield f"        {_flag(flag)} \\"
    yield "        '1:command:->command' '*::argument:->argument'"
    yield "    case $state in"
    yield "    command)"
    yield "        local -a commands"
    yield "        commands=("
    for command in rest:
        yield f"            {_quoted(f'{command.name}:{_text(command.about)}')}"
    yield "        )"
    yield "        _describe command commands ;;"
    yield "    argument)"
    yield "        case $words[1] in"
    for command in rest:
        yield f"        {command.name})"
        parts = [_flag(flag) for flag in command.flags] + [
            f"'*:{(place.about and _text(place.about)[:40]) or 'argument'}:{_action(place)}'"
            for place in command.places[:1]
        ]
        yield "            _arguments \\"
        yield " \\\n".join(f"                {part}" for part in parts) + " ;;"
    yield "        esac ;;"
    yield "    esac"
    yield "}"
    # As a file of $fpath it is the function's own body; by eval it has to be made known.
    yield 'if [ "$funcstack[1]" = "_bushel" ]; then _bushel "$@"; else compdef _bushel bushel; fi'


def _flag(flag: Word) -> str:
    names = flag.names[0] if len(flag.names) == 1 else "{" + ",".join(flag.names) + "}"
    value = "" if flag.kind == "none" else f":value:{_action(flag)}"
    repeated = f"{names}'[{_text(flag.about)}]{value}'"
    return f"'*'{repeated}" if flag.kind != "none" else repeated


def _action(word: Word) -> str:
    if word.kind == "words":
        return f"({' '.join(word.choices)})"
    return {"model": "_bushel_models", "file": "_files", "folder": "_files -/"}.get(word.kind, " ")


def _text(about: str) -> str:
    """Without what means something inside of a specification, or of quotes."""
    plain = about.translate({ord(char): None for char in "[]\\`"}).replace(":", " -")
    return plain.replace("'", "'\\''")


def _quoted(text: str) -> str:
    return f"'{text}'"
