"""What the host does for pages in a step, by rows, by their length and by the size of the pool.

    python -m benchmarks.pages --plot docs/pages-host-time.png

No model runs: this is the upkeep of lists and tables alone (`PageTable.reserve`), which comes to
every step once, whatever the layers. A figure is the median of 400 steps, in microseconds; the plot
has the quartiles beside it. The pool is large enough from the beginning.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import mlx.core as mx

from benchmarks.plot import Point, draw
from bushel.cache.paged.page_pool import PagePool, pages_of
from bushel.cache.paged.page_table import PageTable

_STEPS = 400
_ROWS, _LENGTH, _PAGES = 8, 1024, 1 << 14  # of the lines on which they do not change
_LINES = {
    "rows from 1": [(1 << at, _LENGTH, _PAGES) for at in range(8)],
    "tokens from 512": [(_ROWS, 512 << at, _PAGES << 3) for at in range(8)],
    "pages from 8k": [(_ROWS, _LENGTH, 8192 << at) for at in range(8)],
}


def upkeep(rows: int, length: int, pages: int) -> list[float]:
    """Microseconds of a step's, as rows of so many tokens go on in a pool of so many pages."""
    pool = PagePool()
    pool.resize(max(pages, rows * pages_of(length + _STEPS)))
    table = PageTable(pool)
    for _ in range(rows):
        one = pool.new()
        pool.make_writable(one, 0, length)
        table.join(one)
    positions, times = [length] * rows, []
    for _ in range(_STEPS):
        start = time.perf_counter()
        table.reserve(positions, 1)
        mx.eval(table.lengths)
        times.append(1e6 * (time.perf_counter() - start))
        positions = table.after
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plot", type=Path, help="a PNG to draw the lines to")
    options = parser.parse_args()
    upkeep(_ROWS, _LENGTH, _PAGES)
    lines: dict[str, list[Point]] = {}
    for name, places in _LINES.items():
        lines[name] = []
        for at, place in enumerate(places):
            low, middle, high = statistics.quantiles(upkeep(*place), n=4)
            lines[name].append((at, middle, low, high))
            rows, length, pages = place
            print(f"{rows:4} rows of {length:6} tokens, pool of {pages:8} pages: {middle:6.1f} us")
    if options.plot is not None:
        title = "host time of a step's pages, us"
        draw(options.plot, title, "doublings, of what each line names", lines)


if __name__ == "__main__":
    main()
