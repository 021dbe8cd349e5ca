"""The same loads through Bushel and its peers: engines in one process, servers over HTTP.

    python -m benchmarks.field --quick --out build/field   all parts, in five minutes on a CPU
    python -m benchmarks.field --rounds 5 --clients 1 4 8
    python -m benchmarks.field --part engine --model 8b --dtype bfloat16 --loads burst poisson
    python -m benchmarks.field --part http --model 8b --dtype bfloat16 --clients 8 --alone 32

    engine    Bushel's engine and mlx-lm's BatchGenerator in one process
    http      Bushel's, mlx-lm's and mlx-vlm's servers on one model directory: the same loads, and
              closed loops
    sessions  over HTTP: an agent's 20 turns, and a hybrid model
    images    over HTTP: a picture in every second request

Rounds run all sides after each other, the order turning round, and each round has other prompts,
lengths and times; every side has its own settings, and for each load a round to warm up. Figures
are medians with quartiles. Every reply is checked against the model alone (`solo.py`), or those of
as many rounds as --checked says; the exit code is 1 if one of Bushel's is wrong or missing. "of
limit" is the least time that a round's own load can take (`limits.py`) over the time it took; "of
bare" the same with a bare prefill followed by a bare decode loop, both measured in the run with the
library's own caches: pages and passes that prompts share can be faster. "peak" is what a server's
processes took during a load (`memory.py`); in one process, what MLX did.

With --quick lengths are shorter and rounds are two, one for an agent's session. Only the first load
of the engine, and of each set of servers, has a round to warm up. Over HTTP only `poisson`
(arrivals at any time) and `shared` (system prompts in common) are sent, beside closed loops. A
token that differs from the solo loop's is not told from one that is as good (`Solo.literal`).

--out FOLDER draws when first tokens came and what closed loops made, and writes all figures to
field.json.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.field.limits import Machine, measure_machine
from benchmarks.field.loads import LOADS, SCALES
from benchmarks.field.parts import (
    Setting,
    Subject,
    engine_part,
    http_part,
    image_part,
)
from benchmarks.field.servers import COMMANDS
from benchmarks.field.table import OURS, Result, as_json, pictures, table
from benchmarks.networks import CONFIGS, make, save
from benchmarks.rounds import about_libraries
from bushel.engine.attention_route import choose_attention
from bushel.models import load

PARTS = ("engine", "http", "sessions", "images")
QUICK_LOADS = ("shared", "poisson")  # the shorter one first: it has a round to warm up
LONG_LOADS = ("ragged",)  # left out of a quick run


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="five minutes on a CPU")
    parser.add_argument("--part", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--model", default="20m", choices=CONFIGS)
    parser.add_argument("--hybrid", default="hybrid8m", choices=CONFIGS, help="of the sessions")
    parser.add_argument("--model-dir", type=Path, help="a checkpoint, instead of --model")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--scale", choices=SCALES, help="by default small on a CPU, full on a GPU")
    parser.add_argument("--loads", nargs="*", default=list(LOADS), choices=LOADS)
    parser.add_argument("--clients", nargs="*", type=int, default=[1, 4, 8])
    parser.add_argument("--alone", nargs="*", type=int, default=[], help="clients, without peers")
    parser.add_argument("--sides", nargs="+", default=list(COMMANDS), choices=COMMANDS)
    parser.add_argument("--rounds", type=int, help="that count; 5, or 2 with --quick")
    parser.add_argument("--checked", type=int, help="rounds whose replies are checked; all of them")
    parser.add_argument("--patience", type=float, default=300, help="seconds for one load")
    parser.add_argument("--out", type=Path, help="folder for pictures and field.json")
    options = parser.parse_args(arguments)
    if both := {*options.clients} & {*options.alone}:
        # They would be asked the same, and answered from what is kept of it.
        parser.error(f"--alone {min(both)}: --clients has it, too")
    return options


def setting_of(options: argparse.Namespace) -> Setting:
    on_gpu = mx.default_device() == mx.Device(mx.gpu)
    scale = options.scale or ("quick" if options.quick else "full" if on_gpu else "small")
    dtype = getattr(mx, options.dtype)
    return Setting(
        SCALES[scale],
        dtype,
        rounds=options.rounds or (2 if options.quick else 5),
        session_rounds=1 if options.quick else options.rounds or 5,
        warm=not options.quick,
        literal=dtype == mx.float32 and not options.quick,
        sides=options.sides,
        patience=options.patience,
        checked=options.checked,
    )


class Checkpoints:
    """Models by name, each made once, and written once where a server needs it."""

    def __init__(self, root: Path, machine: Machine, setting: Setting, given: Path | None):
        self._root, self._machine, self._setting, self._given = root, machine, setting, given
        self._subjects: dict[str, Subject] = {}

    def subject(self, name: str) -> Subject:
        if name not in self._subjects:
            given = self._given
            model = make(name, self._setting.dtype) if given is None else load(str(given))
            print(f"  {name}: attention {choose_attention(model, 'auto')}", flush=True)
            self._subjects[name] = Subject(
                model, self._machine, self._setting.dtype, self._setting.literal
            )
        return self._subjects[name]

    def folder(self, name: str) -> Path:
        if self._given is not None:
            return self._given
        folder = self._root / name
        if not folder.exists():
            folder.mkdir()
            save(name, self.subject(name).model.network, self._setting.dtype, folder)
        return folder


def _runs(
    options: argparse.Namespace, setting: Setting, made: Checkpoints
) -> Iterator[Callable[[], list[Result]]]:
    """The parts that were asked for. An agent's session goes to servers that are up already."""

    def http(part: str, name: str, *what: Any) -> Callable[[], list[Result]]:
        return lambda: http_part(part, made.folder(name), made.subject(name), setting, *what)

    sessions = "sessions" in options.part
    if "engine" in options.part:
        whole = [name for name in options.loads if name not in LONG_LOADS or not options.quick]
        yield lambda: engine_part(made.subject(options.model), setting, whole)
    if "http" in options.part:
        # A quick run sends those loads over HTTP that only a whole server shows.
        loads = options.loads
        if options.quick:
            loads = [name for name in QUICK_LOADS if name in options.loads]
        yield http("http", options.model, loads, options.clients, options.alone, sessions)
    elif sessions:
        yield http("http", options.model, [], [], [], True)
    if sessions:
        yield http("hybrid", options.hybrid, [], [4], [], not options.quick)
    if "images" in options.part:
        yield lambda: image_part(setting)


def main() -> None:
    options = parsed()
    # Servers must not outlive a run that is cut off: they would slow down the next one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    setting, begun = setting_of(options), time.perf_counter()
    machine = measure_machine(setting.dtype)
    about = (
        f"{about_libraries()}, {options.model_dir or options.model}, {options.dtype}, "
        f"{machine.bandwidth / 1e9:.1f} GB/s, {machine.rate / 1e12:.3g} TFLOP/s"
    )
    print(about, flush=True)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        made = Checkpoints(Path(folder), machine, setting, options.model_dir)
        for run in _runs(options, setting, made):
            results += run()
    print(f"\n{about}")
    for part in dict.fromkeys(result.part for result in results):
        print(f"\n{part}\n{table([one for one in results if one.part == part])}")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        pictures(results, options.out)
        (options.out / "field.json").write_text(as_json(results, {"about": about}))
    print(f"\n{time.perf_counter() - begun:.0f} s")
    if bad := [result.load for result in results if result.side == OURS and result.wrong]:
        raise SystemExit(f"wrong or missing replies of Bushel: {', '.join(bad)}")


if __name__ == "__main__":
    main()
