"""`python -m tests.parity [family …]`: the whole matrix, as a table."""

import sys
import time

from ..families.text import TEXT
from ..families.vision import VISION
from .run import BOUND, Result
from .scenarios import scenarios
from .subject import NAMES, ROWS, subject

HEAD = f"{'family':22} {'lane':6} {'batch':>5} {'difference':>10}  note"


def row(name: str, results: dict[str, Result]) -> str:
    lane = "single" if reasons(results) else "batch"
    worst = max(result.difference for result in results.values())
    return f"{name:22} {lane:6} {batch(results):5} {worst:10.1e}  {note(name, results)}"


def reasons(results: dict[str, Result]) -> list[str]:
    """Why rows were served one at a time, if they were."""
    return sorted({result.single_because for result in results.values() if result.single_because})


def batch(results: dict[str, Result]) -> int:
    return max(result.largest_batch for result in results.values())


def as_expected(name: str, results: dict[str, Result]) -> bool:
    return batch(results) == (1 if subject(name).single else ROWS)


def note(name: str, results: dict[str, Result]) -> str:
    bad = [title for title, result in results.items() if not result.ok]
    if bad:
        return f"DIFFERENT: {', '.join(bad)}"
    if not as_expected(name, results):
        return "NOT BATCHED" if batch(results) < ROWS else "BATCHED"
    said = ["+".join(subject(name).kinds), *reasons(results)]
    wider = {result.bound for result in results.values()} - {BOUND}
    said += [f"bound {max(wider):.0e}"] if wider else []
    chunks = (TEXT[name] if name in TEXT else VISION[name]).equal_chunks
    said += [f"equal chunks: {chunks}"] if chunks else []
    return "; ".join(said)


def main(names: list[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    start, bad = time.perf_counter(), []
    print("Largest decode batch, and largest difference of a log-probability from a solo run;")
    print(f"bound {BOUND:.0e}.\n\n{HEAD}")
    for name in names or NAMES:
        results = {}
        for title, scenario in scenarios(name).items():
            print(f"{name}: {title}\033[K", end="\r", file=sys.stderr, flush=True)
            results[title] = scenario(subject(name))
        print(row(name, results), flush=True)
        bad += [f"{name}, {title}: {result}" for title, result in results.items() if not result.ok]
        bad += [] if as_expected(name, results) else [f"{name}: {note(name, results)}"]
    print(f"\n{len(names or NAMES)} families in {time.perf_counter() - start:.0f} s")
    print("\n".join(bad) if bad else "All equal.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
