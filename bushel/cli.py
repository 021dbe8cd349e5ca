"""The `bushel` command: one sub-command per function below, each returns its exit code.

0 all is well, 1 what was asked for failed, 2 it could not be asked: arguments or a checkpoint
are wrong, told in one line. Ctrl-C: 130.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from bushel.commands import greeting, inspect_model, launch, local_models, run_prompt
from bushel.commands.bench import command as bench
from bushel.commands.chat import command as chat
from bushel.commands.completion import command as completion
from bushel.core import BushelError
from bushel.core.backend import require_backend
from bushel.core.load_progress import own_progress
from bushel.core.spelling import did_you_mean
from bushel.core.terminal_line import TerminalLine
from bushel.core.version import VERSION
from bushel.doctor import command as doctor
from bushel.server.command import flags
from bushel.server.command.options_of_flags import options_of_flags
from bushel.server.command.settings import with_settings
from bushel.server.observability import logs

_FAILED, _WRONG = 1, 2
_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")
_PASSING_ON = (["launch"], ["bench"])  # what stands behind --, to a program that they start
# As somebody needs them who is new here.
_ORDER = ("chat", "run", "serve", "launch", "list", "pull", "rm", "inspect", "bench", "check")

_CHECK_EXAMPLES = """\
examples:
  bushel check mlx-community/Qwen3-4B-Instruct-2507-4bit
  bushel check ./my-model --dtype bfloat16
  bushel check bushel:tiny --json | jq .ok
"""


class _Help(argparse.HelpFormatter):
    """Wraps what is prose, and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    def __init__(self, **settings: Any):
        super().__init__(**{"formatter_class": _Help, **settings})

    def error(self, message: str) -> NoReturn:
        wrong = _CHOICE.search(message)
        if wrong is not None:
            known = re.findall(r"[\w-]+", wrong[2])
            flag = message[: wrong.start()] if "--" in message[: wrong.start()] else ""
            message = f"{flag}{wrong[1]!r} is not known{did_you_mean(wrong[1], known)}".rstrip(".")
            message += "" if message.endswith("?") else f": one of {', '.join(known)}"
        _complain(f"{message} (see {self.prog} --help)")
        raise SystemExit(_WRONG)


def _complain(message: str) -> None:
    logs.complain(f"bushel: {' '.join(message.split())}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bushel",
        description="Inference for language and vision models on MLX. Without a command: what "
        "runs, what is here, and what to do next.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bushel {VERSION}")
    parser.add_argument(
        "--json", dest="greeting_json", action="store_true", help="without a command: as JSON"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    chat.add(commands)
    run_prompt.add(commands)
    check = commands.add_parser(
        "check",
        help="compare batched answers with solo answers, on this model and machine",
        description="Runs a model's rows together and each alone, and compares what they say: "
        "mixed lengths, joins and leaves, two chunk sizes, images. Exits with 1 if they differ.",
        epilog=_CHECK_EXAMPLES,
    )
    _add_model(check)
    check.add_argument("--json", action="store_true", help="one JSON object")
    check.set_defaults(run=_check)
    examined = doctor.add(commands)
    _add_model(examined, nargs="?")
    examined.set_defaults(run=doctor.doctor)
    _add_model(inspect_model.add(commands))
    local_models.add(commands)
    launch.add(commands)
    bench.add(commands)
    serving = flags.add(commands)
    serving.set_defaults(run=partial(_serve, serving))
    completion.add(commands, parser)
    _add_help(commands, parser)
    known = {name: at for at, name in enumerate(_ORDER)}
    commands._choices_actions.sort(key=lambda action: known.get(action.dest, len(known)))
    parser.set_defaults(run=partial(_greet, greeting.command_helps(commands)))
    return parser


def _add_help(commands: Any, parser: argparse.ArgumentParser) -> None:
    """The two flags as commands, as people try them."""
    helping = commands.add_parser("help", help="what a command does, and its flags")
    helping.add_argument("about", metavar="COMMAND", nargs="?", help="default: all of them")
    helping.set_defaults(run=partial(_help, parser))
    version = commands.add_parser("version", help="which Bushel this is")
    version.set_defaults(run=_version)


def _help(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    commands = _commands(parser)
    if options.about not in (None, *commands):
        hint = did_you_mean(options.about, commands).rstrip(".")
        raise BushelError(f"{options.about!r} is not known{hint} (see bushel --help)")
    (commands[options.about] if options.about else parser).print_help()
    return 0


def _version(options: argparse.Namespace) -> int:
    print(f"bushel {VERSION}")
    return 0


def _greet(helps: dict[str, str], options: argparse.Namespace) -> int:
    return greeting.greet(VERSION, helps, as_json=options.greeting_json)


def _add_model(parser: argparse.ArgumentParser, **more: Any) -> None:
    """What every command that loads a model takes."""
    parser.add_argument("model", metavar="MODEL", help="a directory or a hub id", **more)
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="default: the checkpoint's (float32 on a CPU)",
    )
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run code that the checkpoint brings"
    )


def _check(options: argparse.Namespace) -> int:
    require_backend()
    from bushel.check import as_json, check, table
    from bushel.engine import device_memory
    from bushel.models import load

    line = TerminalLine()
    model = load(
        options.model,
        dtype=options.dtype,
        trust_remote_code=options.trust_remote_code,
        usable=device_memory.usable(device_memory.memory_limit()),
        loading=own_progress(Path(options.model).name),
    )
    report = check(model, lambda step: line.show(f"{model.name}: {step}"))
    model.close()
    line.show("")
    print(json.dumps(as_json(report), indent=2) if options.json else table(report))
    return 0 if report.ok else _FAILED


def _serve(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    options, notes = options_of_flags(with_settings(arguments, parser, os.environ))
    logs.setup(options)
    for note in notes:
        logs.log.warning("%s", note)
    gc.disable()  # what an import makes stays: a tenth of this one looked for garbage in it
    from bushel.server.run import serve

    gc.enable()
    return serve(options)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    words = list(sys.argv[1:] if arguments is None else arguments)
    passed_on: list[str] = []
    if words[:1] in _PASSING_ON and "--" in words:
        at = words.index("--")
        words, passed_on = words[:at], words[at + 1 :]
    parser = _parser()
    options, rest = parser.parse_known_args(words, argparse.Namespace(passed_on=passed_on))
    if options.command == "serve":
        rest = flags.take_model(options, rest)
    elif options.command == "run":
        rest = run_prompt.take_words(options, rest)
    if options.greeting_json and options.command:
        rest = ["--json", *rest]  # of the command, behind which it belongs
    if rest:
        known = _commands(parser)[options.command] if options.command else parser
        _complain(
            f"unrecognized arguments: {' '.join(rest)}{_meant(rest, known)} (see {known.prog} "
            "--help)"
        )
        raise SystemExit(_WRONG)
    return options


def _meant(rest: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """The flag that the first of these was to be, if there is one like it."""
    flag = next((word.partition("=")[0] for word in rest if word.startswith("--")), None)
    known = [name for name in parser._option_string_actions if name.startswith("--")]
    return "" if flag is None else did_you_mean(flag, known).rstrip(".")


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    [found] = [it for it in parser._actions if isinstance(it, argparse._SubParsersAction)]
    return dict(found.choices)


@contextlib.contextmanager
def _ended_by_interrupts() -> Iterator[None]:
    """Ctrl-C ends the process as the system does it: at once, also inside of MLX, where Python
    hears no signal for as long as a file takes to be read. A shell calls that exit code 130.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main(arguments: Sequence[str] | None = None) -> int:
    with _ended_by_interrupts():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parsed(arguments)
    if options.command != "launch":  # a client's environment is the caller's own
        # Its advice about frameworks that Bushel does not use would hide what Bushel says.
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        code = int(options.run(options))
    except BushelError as error:
        _complain(str(error))
        code = _WRONG
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = _FAILED
    logs.finish()
    return code
