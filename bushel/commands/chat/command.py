"""The command line of `bushel chat`."""

from __future__ import annotations

import argparse
import io
import signal
import sys
from collections.abc import Sequence
from typing import Any

from bushel.commands import sampling_flags
from bushel.core import BushelError
from bushel.core.terminal_line import is_terminal

_EXAMPLES = """\
examples:
  bushel chat                                     a server that runs, or a model on this machine
  bushel chat mlx-community/Qwen3-4B-Instruct-2507-4bit
  bushel chat --system "Answer in one sentence." --temperature 0.3
  bushel chat --url http://studio.local:8000      a server elsewhere

/help shows what can be done in a chat. The path of a picture in a question sends the picture.
"""


def add(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "chat",
        help="talk to a model in the terminal",
        description="A conversation with a model, with pictures. A server that runs answers, or "
        "one that is started for it and ends with it.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a served name, a directory or a hub id (default: what is served, or is here)",
    )
    sampling_flags.add(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code; BushelError if nobody can answer."""
    from bushel.commands.run_prompt import answer_once, piped_text

    if not is_terminal(sys.stdin):
        prompt = piped_text()
        if not prompt:
            raise BushelError("There is nothing to ask: standard input is empty, and no terminal.")
        return answer_once(options, prompt, options.model)
    if not is_terminal(sys.stdout):
        raise BushelError("bushel chat needs a terminal; bushel run writes one answer to a pipe.")
    # Ctrl-C stops a reply, and only sometimes all.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _chat(options)
    except KeyboardInterrupt:  # nobody waits for what is being loaded
        return 130
    finally:
        signal.signal(signal.SIGINT, before)


def _chat(options: argparse.Namespace) -> int:
    from bushel.commands.chat.conversation import TerminalConversation
    from bushel.commands.chat.line_editor import LineEditor
    from bushel.commands.chat.session import ChatSession
    from bushel.commands.chat.slash_commands import completions, take
    from bushel.commands.model_connection import connect
    from bushel.commands.pictures import path_of
    from bushel.commands.terminal.terminal_text import Ink, one_line

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    ink = Ink(sys.stdout)
    conversation = TerminalConversation(options.system or "", sampling_flags.settings(options))
    connection = connect(
        options.model,
        url=options.url,
        key=options.api_key,
        tell=lambda text: print(ink.dim(one_line(text)), flush=True),
        choose=_choose,
    )
    session = ChatSession(connection, conversation, ink)
    try:
        whose = "on its own" if connection.own is not None else f"at {connection.client.url}"
        session.say(f"{connection.model}, {whose}. /help shows what can be done; Ctrl-D leaves.")
        session.attach([path_of(path) for path in options.image])
        return session.run(LineEditor(lambda before: completions(session, before)), take)
    finally:
        session.close()


def _choose(models: Sequence[str]) -> str:
    from bushel.commands.chat.line_editor import typed_line

    for number, model in enumerate(models, 1):
        print(f"{number:>3}  {model}")
    while True:
        try:
            answer = typed_line("Which one? ").strip()
        except EOFError:
            raise BushelError("No model was chosen.") from None
        if answer in models:
            return answer
        if answer.isdecimal() and 1 <= int(answer) <= len(models):
            return models[int(answer) - 1]
