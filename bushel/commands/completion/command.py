"""The command line of `bushel completion`."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

_SHELLS = ("bash", "zsh", "fish")
_EXAMPLES = """\
to have it in every shell:
  bash   eval "$(bushel completion bash)"     in ~/.bashrc
  zsh    eval "$(bushel completion zsh)"      in ~/.zshrc, behind compinit
  fish   bushel completion fish > ~/.config/fish/completions/bushel.fish
"""


def add(commands: Any, parser: argparse.ArgumentParser) -> None:
    """parser: of `bushel`, whose commands are completed."""
    completion: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="a script that lets your shell complete commands, flags and models",
        description="Prints a script for a shell, which then completes commands, flags, choices, "
        "files and models.",
        epilog=_EXAMPLES,
    )
    completion.add_argument(
        "shell",
        metavar="{" + ",".join(_SHELLS) + "}",
        choices=(*_SHELLS, "models"),
        help="which one; `models` is what the scripts ask for",
    )
    completion.set_defaults(run=partial(_completion, parser))


def _completion(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from bushel.commands.completion import bash, fish, zsh
    from bushel.commands.completion.command_words import command_words

    if options.shell == "models":
        print("\n".join(_models()))
        return 0
    scripts = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
    print(scripts[options.shell](command_words(parser)), end="")
    return 0


def _models() -> list[str]:
    """What is served or on this machine, each once."""
    from bushel.commands.greeting import seen_servers
    from bushel.commands.terminal.terminal_text import one_line
    from bushel.core.checkpoint import TINY
    from bushel.core.hub_folders import cached_models

    served = [one_line(name) for server in seen_servers() for name in server.models]
    return list(dict.fromkeys([*served, *cached_models(), TINY]))
