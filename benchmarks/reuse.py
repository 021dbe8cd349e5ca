"""What prefix reuse gains and costs in the engine alone, with random weights of real shapes.

    python -m benchmarks.reuse                                      small models, on a CPU
    python -m benchmarks.reuse --hybrid hybrid4b --attention 8b --dtype bfloat16 --batch 1 8 32

    turns    a hybrid: five turns that grow to 8k tokens; time to first token, cold and reused
    shared   attention: 30k tokens that all questions begin with
    rounds   ten rounds of tools on 30k tokens: what is stored over one copy of it (1.15 is the
             promise), and states besides the grid of long prompts (4)
    decode   tokens a second with the cache on over off, replies ending and others beginning all
             the time (0.98 is the promise)
    keeping  the same from the other side: what keeping takes of the time

Cold is the same prompt under a salt of its own: it finds nothing, and is kept like any other. The
two are measured in turns, after a pass of both that is not counted; figures are medians over
repeats, lowest and highest beside them. Prompts are token ids: a turn is the prompt before it, the
reply, and new tokens.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Sequence

import mlx.core as mx

from benchmarks.engines import Asked, ask, engine_on, per_token, states
from benchmarks.networks import CONFIGS, make
from benchmarks.prefix_upkeep import keeping, upkeep
from bushel.core.options import EngineOptions
from bushel.core.status import as_json
from bushel.engine.engine import Engine

PARTS = ("turns", "shared", "rounds", "decode", "keeping")
_REPLY = 32  # tokens
_salts = (f"cold {at}" for at in itertools.count())


def some(seed: int, length: int, vocab: int) -> list[int]:
    """Token ids that do not repeat themselves."""
    key = mx.random.key(seed)
    found: list[int] = mx.random.randint(0, vocab - 1, (length,), key=key).tolist()  # type: ignore[assignment]
    return found


def conversation(
    answer: Callable[[list[int]], Asked], turns: int, first: int, step: int, vocab: int
) -> list[int]:
    """Turn after turn, from `first` tokens on; returns all of it, with the last reply."""
    ids = some(0, first, vocab)
    for turn in range(1, turns):
        ids = [*ids, *answer(ids).reply, *some(turn, step, vocab)]
    return [*ids, *answer(ids).reply]


def _line(name: str, tokens: int, reused: Sequence[Asked], cold: Sequence[float]) -> str:
    times = [it.first for it in reused]
    share = min(it.cached for it in reused) / tokens
    sides = "  ".join(
        f"{statistics.median(it) * 1e3:8.1f} ({min(it) * 1e3:.1f} … {max(it) * 1e3:.1f})"
        if it
        else f"{'-':>8}"
        for it in (cold, times)
    )
    ratio = f"{statistics.median(cold) / statistics.median(times):6.1f}" if cold else ""
    return f"{name:10} {tokens:7} {share:7.1%}  {sides}  {ratio}"


HEAD = "           prompt  reused      cold, ms (low … high)    reused, ms (low … high)   ratio"


def turns(engine: Engine, options: argparse.Namespace) -> None:
    count, step = 5, options.context // 27
    first = options.context - (count - 1) * (step + _REPLY)
    seen: dict[int, tuple[list[Asked], list[float]]] = {}

    def answer(ids: list[int]) -> Asked:
        reused, colds = seen.setdefault(len(ids), ([], []))
        order = ("cold", "reused") if len(reused) % 2 else ("reused", "cold")
        last = len(ids) >= options.context
        for side in order if last or not options.brief else ("reused",):
            if side == "reused":
                reused.append(ask(engine, ids, _REPLY, "turns", system=first // 2))
            else:
                cold = ask(engine, ids, salt=next(_salts), system=first // 2)
                assert cold.cached == 0, "a cold prompt found something"
                colds.append(cold.first)
        return reused[-1]

    for _ in range(1 if options.brief else options.repeats + 1):
        conversation(answer, count, first, step, engine.model.vocab)
        engine.clear_cache()
    print(HEAD)
    begin = 0 if options.brief else 1
    for turn, (tokens, (reused, colds)) in enumerate(seen.items(), 1):
        print(_line(f"turn {turn}", tokens, reused[begin:], colds[begin:]), flush=True)


def shared(engine: Engine, options: argparse.Namespace) -> None:
    vocab, length = engine.model.vocab, options.shared
    lead = some(1, length, vocab)
    prompts = (lead + some(at, 64, vocab) for at in itertools.count(100))
    ask(engine, next(prompts), salt="shared", system=length)
    reused, cold = list[Asked](), list[float]()
    for repeat in range(options.repeats + 1):
        ids = next(prompts)
        sides = [("shared", reused), (next(_salts), None)]
        for salt, kept in sides if repeat % 2 else reversed(sides):
            asked = ask(engine, ids, salt=salt, system=length)
            if repeat and kept is not None:
                kept.append(asked)
            elif repeat:
                cold.append(asked.first)
    print(HEAD)
    print(_line("shared", length + 64, reused, cold), flush=True)


def rounds(engine: Engine, options: argparse.Namespace) -> None:
    count, step = 10, options.shared // 100
    engine.clear_cache()
    first = options.shared - count * (step + _REPLY)

    def answer(ids: list[int]) -> Asked:
        return ask(engine, ids, _REPLY, system=first // 2)

    ids = conversation(answer, count + 1, first, step, engine.model.vocab)
    stats, each = as_json(engine.cache_status()), per_token(engine)
    grid, others = states(engine)
    print(
        f"{count} rounds, {len(ids)} tokens of {each} bytes: stored "
        f"{stats['edge_bytes'] / (each * len(ids)):.3f} of one copy; {others} states "
        f"besides the grid's {grid}, {stats['snapshot_bytes'] / 1e6:.1f} MB in all",
        flush=True,
    )
    engine.check_integrity()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hybrid", default="hybrid8m", choices=CONFIGS)
    parser.add_argument("--attention", default="20m", choices=CONFIGS)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--context", type=int, default=8192, help="tokens of the fifth turn")
    parser.add_argument("--shared", type=int, default=30000, help="tokens, also of the ten rounds")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument(
        "--brief",
        action="store_true",
        help="turns once, cold at the last alone: where a cold prompt takes a quarter of a minute",
    )
    parser.add_argument("--chunk", type=int, default=EngineOptions.prefill_chunk)
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--pairs", type=int, default=4, help="of measurements, for decode")
    parser.add_argument("--reply", type=int, default=128, help="tokens of a reply, for decode")
    options = parser.parse_args()
    print(f"mlx {mx.__version__}, {mx.default_device()}, {options.dtype}, chunk {options.chunk}")
    for name, own in ((options.hybrid, turns), (options.attention, shared)):
        model = make(name, getattr(mx, options.dtype))
        engine = engine_on(model, chunk=options.chunk)
        for part in (own, rounds):
            if part.__name__ in options.parts:
                print(f"{name}: {part.__name__}", flush=True)
                part(engine, options)
                engine.clear_cache()
        if "decode" in options.parts:
            print(f"{name}: decode, on over off (low … high), tokens/s on, off")
            for batch in options.batch:
                print(upkeep(model, batch, options.pairs, options.reply), flush=True)
        if "keeping" in options.parts:
            print(f"{name}: keeping what a prompt and a reply have run")
            for batch in options.batch:
                print(keeping(model, batch, options.reply), flush=True)
        model.close()
        del model, engine
        mx.clear_cache()


if __name__ == "__main__":
    main()
