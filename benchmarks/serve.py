"""What batching gains over HTTP, against what it gains in a bare loop.

    python -m benchmarks.serve                                   20M parameters, float32
    python -m benchmarks.serve --model 8b --dtype bfloat16

Replies of 256 tokens, streamed: eight at once over one at a time, as a ratio of tokens a second.
The bare loop's ratio is that of `benchmarks.decode`: steps at batch eight over steps at batch
one. Rounds alternate bare and served, so that both see the same machine; figures are medians
over rounds, lowest and highest beside them. 0.90 of the bare loop's ratio is the promise.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.client import stream
from benchmarks.decode import Bare, seconds
from benchmarks.networks import CONFIGS, make, write
from benchmarks.server import serving

_PROMPT = 7  # tokens, since the bare loop has no prompts to run: those of `_body`


def _body(row: int, tokens: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"row {row:3}"}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
    }


async def _together(port: int, rows: int, tokens: int) -> float:
    """Tokens a second of so many requests sent at once."""
    start = time.perf_counter()
    await asyncio.gather(*(stream(port, _body(row, tokens)) for row in range(rows)))
    return rows * tokens / (time.perf_counter() - start)


def served(port: int, rows: int, tokens: int) -> float:
    return asyncio.run(_together(port, rows, tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="20m", choices=CONFIGS)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    rows, tokens, dtype = options.rows, options.tokens, getattr(mx, options.dtype)
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        write(options.model, dtype, Path(folder))
        model = make(options.model, dtype)
        with serving(folder, "--dtype", options.dtype, "--max-num-seqs", str(rows)) as server:
            served(server.port, rows, tokens)
            print(f"mlx {mx.__version__}, {mx.default_device()}, {options.model}, {options.dtype}")
            print("round   bare x1   bare x8   ratio    http x1   http x8   ratio   http/bare")
            found = [_round(at, server.port, model, rows, tokens) for at in range(options.rounds)]
    shares = [http8 / http1 / (bare8 / bare1) for bare1, bare8, http1, http8 in found]
    gains = [http8 / http1 for _, __, http1, http8 in found]
    print(
        f"eight at once over HTTP: {statistics.median(gains):.2f} x one at a time "
        f"({min(gains):.2f} … {max(gains):.2f}), {statistics.median(shares):.3f} of the bare "
        f"loop's ({min(shares):.3f} … {max(shares):.3f})"
    )


def _round(
    at: int, port: int, model: Any, rows: int, tokens: int
) -> tuple[float, float, float, float]:
    """Tokens a second: bare alone, bare together, over HTTP alone, over HTTP together."""
    bare1 = 1 / seconds(Bare(model, 1, _PROMPT).steps, tokens)
    http1 = served(port, 1, tokens)
    http8 = served(port, rows, tokens)
    bare8 = rows / seconds(Bare(model, rows, _PROMPT).steps, tokens)
    print(
        f"{at:5} {bare1:9.1f} {bare8:9.1f} {bare8 / bare1:7.2f}  {http1:9.1f} {http8:9.1f} "
        f"{http8 / http1:7.2f}     {http8 / http1 / (bare8 / bare1):.3f}",
        flush=True,
    )
    return bare1, bare8, http1, http8


if __name__ == "__main__":
    main()
