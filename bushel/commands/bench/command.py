"""`bushel bench`: its arguments, and what it prints while it measures."""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from bushel.commands.bench import table
from bushel.commands.bench.record import BenchRecord, about, as_json, read_record
from bushel.core import BushelError
from bushel.core.terminal_line import TerminalLine

_INTERRUPTED = 130
_TERMINAL = "terminal"
_EXAMPLES = """\
examples:
  bushel bench                                   the server that runs here
  bushel bench MODEL --concurrency 1 4 16        a server of its own, which ends afterwards
  bushel bench MODEL -- --kv-bits 8              ... started with these flags of bushel serve
  bushel bench --url http://host:8080 --rounds 5 --json a.json --plot a.svg
  bushel bench --compare a.json b.json           how much faster b was

Times are those of the client. "First token" is from asking to the first text; "per token" is the
time of each later token of a reply. Prompts share nothing but their template, so that nothing is
reused by accident; "cached tokens" shows what was. Every cell begins with a warm-up.
"""


def add(commands: Any) -> None:
    """Adds it to the sub-commands of a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="measure a server: requests at once, lengths of prompts, time to the first token",
        description="Measures a running server, Bushel's or any other that speaks OpenAI's chat "
        "API, or a model, for which it starts a server. Exits with 1 if requests failed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="bushel bench [MODEL] [options] [-- FLAGS OF SERVE ...]",
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a directory or a hub id; with --url, the name of one that is served there",
    )
    parser.add_argument(
        "--url", help="the server's address; default: BUSHEL_URL, or the one that runs here"
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help="the server's key; default: BUSHEL_API_KEY"
    )
    sweep = parser.add_argument_group("requests")
    sweep.add_argument(
        *("--concurrency", "-c"),
        **_numbers([1, 4, 8], "requests at once (default: 1 4 8)"),
    )
    sweep.add_argument(
        *("--prompt-tokens", "-p"),
        **_numbers([128, 2048], "tokens of a prompt, template included (default: 128 2048)"),
    )
    sweep.add_argument(
        *("--output-tokens", "-o"),
        type=_positive,
        default=128,
        metavar="N",
        help="tokens of a reply (default: 128)",
    )
    sweep.add_argument(
        "--requests",
        type=_positive,
        metavar="N",
        help="requests of each cell of the table (default: four times its concurrency)",
    )
    sweep.add_argument(
        "--rounds",
        type=_positive,
        default=1,
        metavar="N",
        help="repeat the whole sweep N times (default: 1)",
    )
    sweep.add_argument(
        "--shared-prefix",
        type=_positive,
        default=0,
        metavar="TOKENS",
        help="shared prefix of all prompts, in tokens (approximate), to measure a prefix cache",
    )
    sweep.add_argument(
        "--seed", type=int, metavar="N", help="seed for the prompts (default: random)"
    )
    sweep.add_argument(
        "--timeout",
        type=_positive,
        default=600,
        metavar="SECONDS",
        help="request timeout (default: 600)",
    )
    told = parser.add_argument_group("results")
    told.add_argument("--json", metavar="FILE", help="write results and times as JSON; - is stdout")
    told.add_argument(
        "--plot", metavar="FILE", help=f"write curves as an SVG file; {_TERMINAL}: print bars"
    )
    told.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="compare two files of --json; no measurement"
    )
    parser.set_defaults(run=run)


def _numbers(default: list[int], words: str) -> dict[str, Any]:
    return {"nargs": "+", "type": _positive, "default": default, "metavar": "N", "help": words}


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be one or more, not {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    if options.compare:
        records = {
            name: read_record(path) for name, path in zip("AB", options.compare, strict=True)
        }
        print("\n".join(table.compared(records["A"], records["B"])))
        _plot(options.plot, records)
        return 0
    if options.passed_on and not options.model:
        raise BushelError("Flags behind -- are for a server that bench starts: name a MODEL.")
    with _interruptible():
        return _measure(options)


def _measure(options: argparse.Namespace) -> int:
    from bushel.commands.bench.measured_server import measured_server
    from bushel.commands.bench.sweep import Sweep, SweepPlan

    shown = sys.stderr if options.json == "-" else sys.stdout
    line = TerminalLine()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    plan = SweepPlan(
        tuple(options.concurrency),
        tuple(options.prompt_tokens),
        options.output_tokens,
        options.requests,
        options.rounds,
        options.shared_prefix,
        seed,
        options.timeout,
    )
    with measured_server(options.model, options.url, options.api_key, options.passed_on) as server:
        record = BenchRecord(about(server.to.url, server.model, server.says, plan.as_json()), [])
        print(f"{record.name}, replies of {plan.output_tokens} tokens", file=shown)
        print(table.head(), file=shown, flush=True)
        sweep = Sweep(server, plan, line.show)
        interrupted = False
        try:
            for done in sweep.run():
                record.runs.append(done)
                line.show("")
                print(table.row(done.cell, [done]), file=shown, flush=True)
        except KeyboardInterrupt:
            interrupted = True
        interrupted = interrupted or any(one.interrupted for one in record.runs)
        line.show("")
    return _told(record, options, interrupted, sweep.trouble)


def _told(record: BenchRecord, options: argparse.Namespace, interrupted: bool, gone: str) -> int:
    shown = sys.stderr if options.json == "-" else sys.stdout
    if options.rounds > 1 and record.runs:
        print(f"all {options.rounds} rounds together", file=shown)
        for cell, runs in record.cells().items():
            print(table.row(cell, runs), file=shown)
    errors = [one.error for each in record.runs for one in each.requests if one.error]
    if errors:
        print(f"bushel: {len(errors)} requests failed; the first: {errors[0]}", file=sys.stderr)
    if gone:
        print(f"bushel: {gone}", file=sys.stderr)
    if interrupted:
        print("bushel: interrupted; this is what there is.", file=sys.stderr)
    _write(options.json, as_json(record))
    if record.runs:
        _plot(options.plot, {"A": record})
    return _INTERRUPTED if interrupted else 1 if errors or gone else 0


def _write(target: str | None, text: str) -> None:
    if target == "-":
        print(text)
    elif target:
        try:
            Path(target).write_text(text)
        except OSError as error:
            raise BushelError(f"{target} cannot be written: {error.strerror}.") from error


def _plot(target: str | None, records: dict[str, BenchRecord]) -> None:
    if not target:
        return
    from bushel.commands.bench import chart

    if target == _TERMINAL:
        print("\n".join(chart.bars(records)))
        return
    names = [record.name for record in records.values()]
    title = names[0] if len(names) == 1 else f"A: {names[0]}; B: {names[1]}"
    _write(target, chart.svg(records, title))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is heard, since there is something to print and perhaps a server to end; a request to
    end, too.
    """

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    ours = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: end, signal.SIGHUP: end}
    try:
        before = {number: signal.signal(number, handler) for number, handler in ours.items()}
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
