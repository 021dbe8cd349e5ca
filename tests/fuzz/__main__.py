"""`python -m tests.fuzz`: random workloads for so long, each request compared with itself alone.

    --seconds 3600 --seed 7 --families llama,qwen3_5_vl      what to run; families: all is every one
    --replay llama:7-3:llm --acts 0,2,5                      one workload, or some of its acts
    --mutation old-load                                      with a fault put back: exits with 1

Exits with 1 at the first workload that goes wrong, with one command that repeats it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from itertools import count

from tests.families import text, vision
from tests.families.text import TEXT
from tests.families.vision import VISION
from tests.fuzz.counts import Counts, Outcome
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.on_http import OnHTTP
from tests.fuzz.on_llm import OnLLM
from tests.fuzz.shrink import shrink
from tests.fuzz.workload import Door, Workload, draw

# Every kind of state in every company, ways to place images, and families that are cut or served
# by themselves: 41 that stand for all.
_OTHERS = (
    "plamo3",
    "gemma2",
    "cohere2",
    "llama4",
    "deepseek_v2",
    "gpt2",
    "mllama",
    "glm5_next",
    "deepseek_v4",
)
FAMILIES = (*text.CORE, *text.COMMON, *sorted(vision.EXEMPLARS | vision.COMMON), *_OTHERS)

_VISIT = 3  # workloads of a family while its weights are loaded
_HTTP = 30  # one workload in so many is a server's, which takes as long as many others
_SHRINK = 120.0  # seconds
# Two tokens closer than rounding: some in a million tokens, and never many.
_TIES = 5000  # tokens for one


def play(workload: Workload, *, integrity: bool) -> Outcome:
    if workload.door == "http":
        return OnHTTP(workload).play()
    return OnLLM(workload, integrity=integrity).play()


def drawn(family: str, seed: str, door: Door) -> Workload:
    return draw(family, seed, door, family in VISION)


def run(args: argparse.Namespace) -> int:
    counts, start = Counts(), time.monotonic()
    for number in count():
        elapsed = time.monotonic() - start
        if elapsed >= args.seconds or number == args.workloads:
            break
        family = args.families[number // _VISIT % len(args.families)]
        http = args.http and number % _HTTP == _HTTP - 1
        workload = drawn(family, f"{args.seed}-{number}", "http" if http else "llm")
        outcome = play(workload, integrity=args.integrity)
        counts.add(outcome.counts)
        if number % 10 == 9 or http:
            print(f"{elapsed:6.0f} s  {family:20} {counts}", flush=True)
        if outcome.wrong:
            print(f"{elapsed:6.0f} s  {counts}")
            blame(workload, outcome, args)
            return 1
    print(f"{time.monotonic() - start:6.0f} s  {counts}")
    if counts.ties > 3 + counts.tokens / _TIES:
        print("WRONG: more ties than rounding makes")
        return 1
    print("Every request was answered as it is alone.")
    return 0


def blame(workload: Workload, outcome: Outcome, args: argparse.Namespace) -> None:
    print(f"WRONG: {workload.family}, seed {workload.seed}, over {workload.door}")
    print("\n".join(f"  {it}" for it in outcome.wrong), flush=True)
    kept = list(range(len(workload.acts)))
    if workload.door == "llm":  # the same every time
        kept = shrink(
            len(workload.acts),
            lambda acts: bool(play(workload.only(acts), integrity=args.integrity).wrong),
            _SHRINK,
        )
    said = [
        f"--replay {workload.family}:{workload.seed}:{workload.door}",
        f"--acts {','.join(map(str, kept))}",
        *([f"--mutation {args.mutation}"] if args.mutation != "none" else []),
        *([] if args.integrity else ["--no-integrity"]),
    ]
    print(f"  {len(kept)} of {len(workload.acts)} acts repeat it:")
    print(f"  python -m tests.fuzz {' '.join(said)}", flush=True)


def replay(args: argparse.Namespace) -> int:
    family, seed, door = args.replay.split(":")
    workload = drawn(family, seed, door)
    if args.acts:
        workload = workload.only([int(it) for it in args.acts.split(",")])
    print(workload.settings)
    for act in workload.acts:
        said = f": {workload.asks[act.number]}" if act.what == "submit" else ""
        print(f"  {act.what} {act.number}{said}")
    outcome = play(workload, integrity=args.integrity)
    print("\n".join(["WRONG:", *outcome.wrong] if outcome.wrong else ["right"]))
    print(outcome.counts)
    return 1 if outcome.wrong else 0


def families(said: str) -> list[str]:
    names = [*TEXT, *VISION] if said == "all" else said.split(",") if said else list(FAMILIES)
    if unknown := set(names) - {*TEXT, *VISION}:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return names


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workloads", type=int, help="no more than so many")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--families", type=families, default=families(""))
    parser.add_argument("--no-http", dest="http", action="store_false", help="LLM alone")
    parser.add_argument("--no-integrity", dest="integrity", action="store_false")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), default="none")
    parser.add_argument("--replay", metavar="FAMILY:SEED:DOOR")
    parser.add_argument("--acts", help="numbers of those to replay")
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    try:
        with MUTATIONS[args.mutation]():
            return replay(args) if args.replay else run(args)
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
