"""The command line of `bushel doctor`."""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import time
from typing import Any

from bushel.core import BackendError
from bushel.core.version import VERSION
from bushel.doctor.sections import SECTIONS

_LONGEST_SLEEP = 24 * 3600.0
_EXAMPLES = """\
examples:
  bushel doctor --quick
  bushel doctor mlx-community/Qwen3-4B-Instruct-2507-4bit
  bushel doctor --section device --json | jq .ok
"""


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds `doctor` to the sub-commands of a parser, but for what every command takes."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="look at this machine, in five minutes at most, and report what is wrong",
        description="Looks at the system, the device, samplers, speed, batches, a server that is "
        "killed and frozen, and the clocks. Each line is ok, slow, wrong or skipped; exits with 1 "
        "if anything is wrong. The report is made to be pasted into an issue.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--section",
        dest="sections",
        action="append",
        choices=tuple(SECTIONS),
        help="only this one; may be repeated",
    )
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--json", action="store_true", help="one JSON object, at the end")
    parser.add_argument(
        "--sleep",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="wait for so long, in which the machine may be put to sleep, and tell what the clocks "
        "and a server made of it",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST_SLEEP:
        rule = f"a number of seconds, {_LONGEST_SLEEP:.0f} at most"
        raise argparse.ArgumentTypeError(f"must be {rule}, not {text!r}")
    return value


def _require_backend() -> None:
    """Asked in another process: what MLX does to one that imports it is for the report to tell."""
    command = [sys.executable, "-m", "bushel.core.backend"]
    asked = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if asked.returncode == 2:
        raise BackendError(asked.stdout)


def doctor(arguments: argparse.Namespace) -> int:
    """Returns the exit code; BushelError if the model that was named is not there."""
    from bushel.core.checkpoint import read_checkpoint
    from bushel.doctor import run
    from bushel.doctor.finding import DoctorOptions, Finding
    from bushel.doctor.report import DoctorReport

    options = DoctorOptions(
        model=arguments.model,
        dtype=arguments.dtype,
        trust_remote_code=arguments.trust_remote_code,
        quick=arguments.quick,
        sleep=arguments.sleep,
    )
    _require_backend()
    if options.model is not None:
        read_checkpoint(options.model, trust_remote_code=options.trust_remote_code)
    report = DoctorReport(as_json=arguments.json)
    wanted = arguments.sections or SECTIONS
    sections = {name: module for name, module in SECTIONS.items() if name in wanted}
    if not arguments.json:
        model = f" {options.model}" if options.model else ""
        at = time.strftime("%Y-%m-%d %H:%M %z")
        print(f"bushel doctor{model}, bushel {VERSION}, {at}", flush=True)
    interrupted = False
    # What it has started has to be ended first.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run.run(options, report.add, report.progress, sections)
    except KeyboardInterrupt:  # what was started has been ended
        interrupted = True
        report.add("interrupted", Finding("skipped", "the rest", "nobody waited for it"))
    finally:
        signal.signal(signal.SIGINT, before)
    report.close()
    return 1 if report.wrong or interrupted else 0
