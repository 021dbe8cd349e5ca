"""The `bushel` command: one sub-command per function below, each returns its exit code.

0 all is well, 1 what was asked for failed, 2 it could not be asked: arguments or a checkpoint
are wrong, told in one line.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn

from bushel.core import BushelError
from bushel.core.backend import require_backend
from bushel.doctor import command as doctor
from bushel.server.command import flags
from bushel.server.command.settings import with_settings
from bushel.server.observability import logs

_FAILED, _WRONG = 1, 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _complain(f"{message} (see {self.prog} --help)")
        raise SystemExit(_WRONG)


def _complain(message: str) -> None:
    logs.complain(f"bushel: {' '.join(message.split())}")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bushel",
        description="Inference for language and vision models on MLX.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"bushel {version('bushel')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="compare batched answers with solo answers, on this model and machine",
        description="Runs a model's rows together and each alone, and compares what they say: "
        "mixed lengths, joins and leaves, two chunk sizes, images. Exits with 1 if they differ.",
    )
    _add_model(check)
    check.set_defaults(run=_check)
    examined = doctor.add(commands)
    _add_model(examined, nargs="?")
    examined.set_defaults(run=doctor.doctor)
    serving = flags.add(commands)
    serving.set_defaults(run=partial(_serve, serving))
    return parser


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
    from bushel.check import check, table
    from bushel.models import load

    model = load(options.model, dtype=options.dtype, trust_remote_code=options.trust_remote_code)
    report = check(model)
    model.close()
    print(table(report))
    return 0 if report.ok else _FAILED


def _serve(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    options, notes = flags.options(with_settings(arguments, parser, os.environ))
    logs.setup(options)
    for note in notes:
        logs.log.warning("%s", note)
    gc.disable()  # what an import makes stays: a tenth of this one looked for garbage in it
    from bushel.server.run import serve

    gc.enable()
    return serve(options)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    options, rest = _parser().parse_known_args(arguments)
    if options.command == "serve":
        rest = flags.take_model(options, rest)
    if rest:
        _complain(f"unrecognized arguments: {' '.join(rest)} (see bushel {options.command} --help)")
        raise SystemExit(_WRONG)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parsed(arguments)
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
