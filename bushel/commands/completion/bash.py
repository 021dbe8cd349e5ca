"""Completion for bash, 3.2 and later: a Mac has that one."""

from __future__ import annotations

from collections.abc import Iterator

from bushel.commands.completion.command_words import CommandWords, Word

_VALUES = {"model": "_bushel_models", "file": "_bushel_files -f", "folder": "_bushel_files -d"}
_HEAD = """\
# Completion of bushel for bash. In ~/.bashrc:  eval "$(bushel completion bash)"
_bushel_files() {
    local kind=$1 path
    while IFS= read -r path; do COMPREPLY+=("$path"); done < <(compgen "$kind" -- "$current")
    type compopt >/dev/null 2>&1 && compopt -o filenames 2>/dev/null
}
_bushel_words() { COMPREPLY=($(compgen -W "$1" -- "$current")); }
_bushel_models() { _bushel_words "$(bushel completion models 2>/dev/null)"; }
_bushel() {
    # Of the line itself: bash would cut bushel:tiny at its colon.
    local line=${COMP_LINE:0:$COMP_POINT} current previous command= word
    current=${line##*[[:space:]]}
    line=${line%"$current"}
    COMPREPLY=()
    local IFS=$' \\t\\n' words
    read -r -a words <<< "$line"
    for word in "${words[@]}"; do
        previous=$word
        case $word in
            bushel|*/bushel|-*) ;;
            *) [ -z "$command" ] && command=$word ;;
        esac
    done
    case "$command $previous" in
"""
_TAIL = """\
    esac
    # What bash has before the last colon stays as it is.
    case $current in
        *:*)
            local before=${current%"${current##*:}"} at
            for at in "${!COMPREPLY[@]}"; do COMPREPLY[$at]=${COMPREPLY[$at]#"$before"}; done ;;
    esac
}
complete -o default -F _bushel bushel
"""


def script(commands: list[CommandWords]) -> str:
    return _HEAD + "\n".join(_cases(commands)) + "\n" + _TAIL


def _cases(commands: list[CommandWords]) -> Iterator[str]:
    own, *rest = commands
    for command in rest:
        for flag in command.flags:
            if flag.kind != "none":
                places = "|".join(f'"{command.name} {name}"' for name in flag.names)
                yield f"        {places}) {_values(flag)} ;;"
    yield '        *) case "$command" in'
    for command in rest:
        flags, place = " ".join(command.names()), command.place
        yield f"            {command.name})"
        yield f'                case $current in -*) _bushel_words "{flags}" ;;'
        yield f"                    *) {_values(place)} ;; esac ;;"
    names = " ".join(command.name for command in rest)
    yield f'            "") _bushel_words "{names} {" ".join(own.names())}" ;;'
    yield "        esac ;;"


def _values(word: Word) -> str:
    if word.kind == "words":
        return f'_bushel_words "{" ".join(word.choices)}"'
    return _VALUES.get(word.kind, ":")
