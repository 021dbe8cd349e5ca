"""`python -m tools.tiny`: tokenizer, training in legs, checkpoint, curve; then the evaluation.

python -m tools.tiny tokenizer             once, a few seconds
python -m tools.tiny speed                 a minute: steps a second on this machine
python -m tools.tiny train --minutes 8     a leg; again until it says that the plan is done
python -m tools.tiny finish                checkpoint and curve into bushel/tiny
python -m tools.tiny evaluate              held-out accuracy through Bushel, on the CPU
python -m tools.tiny all                   all but speed and evaluation, in one process
"""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import replace
from pathlib import Path

from tools.tiny.config import Sizes
from tools.tiny.plan import Plan

TINY = Path(__file__).parents[2] / "bushel" / "tiny"
RUN = Path("build") / "tiny"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.tiny",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what", choices=("tokenizer", "speed", "train", "finish", "evaluate", "all")
    )
    parser.add_argument("--run", type=Path, default=RUN, help="where a run keeps its state")
    parser.add_argument("--tiny", type=Path, default=TINY, help="the checkpoint's folder")
    parser.add_argument("--minutes", type=float, default=8.0, help="how long a leg may take")
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--fresh", type=int, default=Plan.fresh, help="new shards in a step")
    parser.add_argument(
        "--long-every", type=int, default=Plan.long_every, help="0: short rows only"
    )
    parser.add_argument("--seed", type=int, default=Plan.seed)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--device", default="")
    parser.add_argument("--count", type=int, default=120, help="questions per task")
    parser.add_argument("--alone", type=int, default=120, help="replies to compare with solo ones")
    parser.add_argument("--only", nargs="*", default=[], help="tasks to evaluate")
    return parser.parse_args()


def _tokenizer(path: Path) -> None:
    from tools.tiny.tokens import train, write_tokenizer

    write_tokenizer(path, train(Sizes()))
    print(f"tokenizer written to {path}")


def _train(chosen: argparse.Namespace) -> bool:
    import torch

    from tools.tiny.speed import measure
    from tools.tiny.train import train

    device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    plan = replace(
        Plan(),
        steps=chosen.steps,
        fresh=chosen.fresh,
        seed=chosen.seed,
        long_every=chosen.long_every,
    )
    tokenizer = chosen.run / "checkpoint"
    if chosen.what == "speed":
        measure(plan, chosen.run, tokenizer, chosen.workers, device)
        return True
    return train(plan, chosen.run, tokenizer, chosen.minutes, chosen.workers, device)


def _finish(chosen: argparse.Namespace) -> None:
    from tools.tiny.curve import draw

    for file in (chosen.run / "checkpoint").iterdir():
        shutil.copy(file, chosen.tiny / file.name)
    draw(chosen.run / "log.jsonl", Path(__file__).with_name("curve.png"))
    print(f"checkpoint written to {chosen.tiny}")


def _evaluate(chosen: argparse.Namespace) -> None:
    from tools.tiny.evaluate import evaluate, table, write

    report = evaluate(chosen.tiny, chosen.count, chosen.only, chosen.alone)
    print(table(report))
    if not chosen.only:
        write(Path(__file__).with_name("report.json"), report)


def main() -> None:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    chosen = _arguments()
    if chosen.what in ("tokenizer", "all"):
        _tokenizer(chosen.run / "checkpoint")
    if chosen.what in ("train", "speed"):
        _train(chosen)
    if chosen.what == "all":
        while not _train(chosen):
            pass
    if chosen.what in ("finish", "all"):
        _finish(chosen)
    if chosen.what == "evaluate":
        _evaluate(chosen)


if __name__ == "__main__":
    main()
