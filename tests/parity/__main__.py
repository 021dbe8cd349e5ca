"""`python -m tests.parity [family …]`: the whole matrix, as a table."""

import sys
import time

from .run import BOUND, Result
from .scenarios import EVERY, scenarios
from .subject import NAMES, ROWS, subject

COLUMNS = (*EVERY, "garbage")


def row(name: str, results: dict[str, Result]) -> str:
    kinds = "+".join(subject(name).kinds)
    batch = max(result.largest_batch for result in results.values())
    cells = [f"{results[it].difference:9.1e}" if it in results else " " * 8 + "-" for it in COLUMNS]
    return f"{name:16} {kinds:17} {batch:5} {' '.join(cells)}  {verdict(results)}"


def verdict(results: dict[str, Result]) -> str:
    equal = all(result.ok for result in results.values())
    full = max(result.largest_batch for result in results.values()) == ROWS
    wider = {result.bound for result in results.values()} - {BOUND}
    good = f"equal (bound {max(wider):.0e})" if wider else "equal"
    return good if equal and full else "DIFFERENT" if full else "NOT BATCHED"


def main(names: list[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    start, bad = time.perf_counter(), []
    print(f"Largest difference of a log-probability, batched against solo; bound {BOUND:.0e}.\n")
    heads = " ".join(f"{name:>9}" for name in COLUMNS)
    print(f"{'family':16} {'kinds':17} {'batch':5} {heads}  verdict")
    for name in names or NAMES:
        results = {}
        for title, scenario in scenarios(name).items():
            print(f"{name}: {title}\033[K", end="\r", file=sys.stderr, flush=True)
            results[title] = scenario(subject(name))
        print(row(name, results), flush=True)
        bad += [f"{name}, {title}: {result}" for title, result in results.items() if not result.ok]
        bad += [f"{name}: {verdict(results)}"] if verdict(results) == "NOT BATCHED" else []
    print(f"\n{len(names or NAMES)} families in {time.perf_counter() - start:.0f} s")
    print("\n".join(bad) if bad else "All equal.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
