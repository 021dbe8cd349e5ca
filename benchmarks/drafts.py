"""Replies with drafts against the same replies token by token, in one run, in turns.

    python -m benchmarks.drafts                                   bushel:tiny, batch 1, 4, 8, 32
    python -m benchmarks.drafts --task edit --speculate lookup    replies that repeat their prompts
    python -m benchmarks.drafts --task schema                     replies of a given form; or tools
    python -m benchmarks.drafts --model 8b --dtype bfloat16 --rate 0.8

Each measurement is a pair of two engines that serve the same requests, the order alternating; a
figure is the median of the pairs' ratios of tokens a second, with the quartiles. All tokens of all
pairs are compared, and the exit code is 1 if any differ. Beside it the limit of a row alone
(`draft_limit`), from what was measured in the same run: a bare step for each token, against one
bare pass as wide as the rounds were and the drafter's own time for as many tokens as they said; or,
where nothing was drafted, what drafts of the rate would have given.

Models of real shapes have random weights, whose replies mean nothing, and a prediction head of
which as many drafts are wrong as `--rate` leaves (`known_replies`). Their replies are the same
whatever layers compute: that they are equal tells of drafting and sampling, not of the state of
layers (`divergence` does).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np

from benchmarks.draft_limit import Limit
from benchmarks.known_replies import SpoiledHead, foretell
from benchmarks.networks import BYTES, CONFIGS, make
from benchmarks.rounds import about_mlx
from bushel import LLM
from bushel.core import Prepared, Request, SamplingParams
from bushel.core.params import resolve
from bushel.engine.attention_route import choose_attention
from bushel.engine.decode_batch import DecodeBatch, Verify
from bushel.engine.drafts import profiling
from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.drafter import Drafts, counts_of
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.llm import Handle
from bushel.models import Model

WORDS = (
    *("apple", "river", "stone", "cloud", "window", "garden", "silver", "morning"),
    *("paper", "bridge", "yellow", "forest", "candle", "summer", "bottle", "island"),
    *("wooden", "market", "purple", "winter", "basket", "harbour", "copper", "evening"),
)
QUESTIONS = (
    "What is 3 + 4?",
    "Who are you?",
    "What can you do?",
    "Tell me something about the sea.",
    "What is the capital of France?",
    "Sort these words: pear, apple, fig.",
    "Say hello to Anna.",
    "How many legs does a spider have?",
)


_LOOK = 3  # pairs between two looks at what a row alone could be


def asked(task: str, row: int) -> str:
    if task == "talk":
        return QUESTIONS[row % len(QUESTIONS)]
    chance = np.random.default_rng(row)
    return "Repeat exactly: " + " ".join(chance.permutation(WORDS))


@dataclass
class Rounds:
    """What rounds looked like, where somebody counts them."""

    rows: list[int] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)

    @contextmanager
    def counted(self) -> Iterator[None]:
        verify = DecodeBatch.verify

        def counting(batch: DecodeBatch, drafts: Drafts) -> Verify:
            counts = counts_of(drafts)
            self.rows.append(len(counts))
            self.widths.append(1 + max(counts))
            return verify(batch, drafts)

        DecodeBatch.verify = counting  # type: ignore[method-assign]
        try:
            yield
        finally:
            DecodeBatch.verify = verify  # type: ignore[method-assign]


class Side:
    """An engine that serves the same requests again and again."""

    def __init__(
        self, engine: Engine, requests: Sequence[Callable[[str], Request]], owner: LLM | None = None
    ):
        """owner: who would close the engine if nobody held it."""
        self.engine, self._requests, self._owner = engine, requests, owner
        self._served = 0
        self.replies: list[list[int]] = []
        self.drafted = self.accepted = 0
        self.after_first = 0.0  # seconds, of the last time

    def serve(self, count: int) -> float:
        """Tokens a second of so many of them together."""
        self._served += 1
        names = [f"{self._served} {row}" for row in range(count)]
        replies: dict[str, list[int]] = {name: [] for name in names}
        self.drafted = self.accepted = 0
        start, first = time.perf_counter(), 0.0
        for name, request in zip(names, self._requests, strict=False):
            self.engine.submit(request(name))
        while not self.engine.idle:
            for event in self.engine.step():
                if event.error is not None:
                    raise SystemExit(event.error)
                replies[event.request_id] += event.token_ids
                self.drafted += event.drafted
                self.accepted += event.accepted
            first = first or (time.perf_counter() if any(replies.values()) else 0.0)
        end = time.perf_counter()
        seconds, self.after_first = end - start, end - first
        self.replies = [replies[name] for name in names]
        return sum(map(len, self.replies)) / seconds


_PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["reader", "writer", "listener"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 3},
        "active": {"type": "boolean"},
    },
    "required": ["name", "age", "kind", "tags", "active"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {"name": "add_person", "parameters": _PERSON, "strict": True},
}


class Guided(Side):
    """Replies that are held to a schema, or calls of a tool, each with a seed of its own."""

    def __init__(self, llm: LLM, task: str):
        engine = llm._engine
        assert engine is not None
        super().__init__(engine, (), llm)
        self._llm, self._task = llm, task

    def _submit(self, row: int) -> Handle:
        asked = {"messages": [{"role": "user", "content": f"Tell me of person {row}."}]}
        held = (
            {"shape": {"json_schema": _PERSON}}
            if self._task == "schema"
            else {"tools": [_TOOL], "tool_choice": "required"}
        )
        params = SamplingParams(max_tokens=400, temperature=0.8, seed=row)
        return self._llm.submit({**asked, **held}, params)

    def serve(self, count: int) -> float:
        start = time.perf_counter()
        handles = [self._submit(row) for row in range(count)]
        while not all(handle.done for handle in handles):
            self._llm.step()
        seconds = self.after_first = time.perf_counter() - start
        outputs = [handle.output for handle in handles]
        for output in outputs:
            if output.error or output.finish_reason not in ("stop", "tool_calls"):
                raise SystemExit(output.error or f"ended by {output.finish_reason}")
        self.replies = [list(output.token_ids) for output in outputs]
        self.accepted = sum(output.usage.accepted_tokens for output in outputs)
        return sum(map(len, self.replies)) / seconds


def request(model: Model, ids: Sequence[int], tokens: int, ends: bool, name: str) -> Request:
    params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=not ends)
    stops = model.tokenizer.end_ids if ends else frozenset[int]()
    decoding = resolve(params, model.defaults, vocab=model.vocab, end_ids=stops)
    return Request(name, Prepared(tuple(ids)), (decoding,))


def of_tiny(task: str, word: str, most: int) -> tuple[Side, Side]:
    """Token by token, and with drafts."""
    sides = list[Side]()
    for speculate in ("off", word):
        llm = LLM("bushel:tiny", speculate=speculate, prefix_cache=False, max_batch=most)
        if task in ("schema", "tools"):
            sides.append(Guided(llm, task))
            continue
        engine = llm._engine
        assert engine is not None
        host, requests = engine.model.host, []
        for row in range(most):
            said = [{"role": "user", "content": asked(task, row)}]
            text = host.tokenizer.hf.apply_chat_template(
                said, add_generation_prompt=True, tokenize=False
            )
            ids = host.encode(text)
            requests.append(partial(request, engine.model, ids, 128, True))
        sides.append(Side(engine, requests, llm))
    return sides[0], sides[1]


def of_network(model: Model, rate: float, most: int, tokens: int, prompt: int) -> tuple[Side, Side]:
    """The same of a model whose head holds at a set rate."""
    foretell(model)
    assert model.mtp is not None
    chance = np.random.default_rng(0)
    prompts = [
        chance.integers(BYTES, model.vocab - 2 * tokens, prompt).tolist() for _ in range(most)
    ]
    requests = [partial(request, model, ids, tokens, False) for ids in prompts]
    policy = Policy(max_batch=most)
    profile = profiling.measure(model, most)
    drafting = {SpoiledHead.name: profiling.of_head(model.mtp, most)}
    makers = (partial(SpoiledHead, model, rate, profile.deepest),)
    speculation = Speculation(makers, profile, None, drafting)
    _show(profile, drafting[SpoiledHead.name][0])
    return (
        Side(Engine(model, policy), requests),
        Side(Engine(model, policy, speculation=speculation), requests),
    )


def _show(profile: CostProfile, drafting: float) -> None:
    print(f"a draft of the head: {drafting * 1e3:.2f} ms; passes of 1, 2, ... tokens a row, in ms:")
    for rows, seconds in enumerate(profile.seconds, 1):
        if rows in (1, 4, 8, 16, 32):
            print(f"{rows:5} rows  " + "  ".join(f"{each * 1e3:6.2f}" for each in seconds))
    more = profile.seconds_per_context_token
    print("and more   " + "  ".join(f"{each * 1e6:6.2f}" for each in more), end=" ")
    print("for each 1,000 tokens that rows look back at")


def _of_rounds(side: Side, batch: int) -> Rounds:
    rounds = Rounds()
    with rounds.counted():
        side.serve(batch)
    return rounds


def _limit(drafts: Side, rounds: Rounds, rate: float | None) -> Limit | None:
    """rate: of the head's drafts that hold, where that is set."""
    if rounds.widths:
        tokens = sum(map(len, drafts.replies))
        return Limit.of_rounds(drafts.engine, rounds.widths, tokens, drafts.accepted)
    return None if rate is None else Limit.at_rate(drafts.engine, rate)


def compare(plain: Side, drafts: Side, batch: int, pairs: int, rate: float | None = None) -> bool:
    """Whether all replies were equal."""
    ratios, decoding, speeds, equal = [], [], [], 0
    for side in (plain, drafts) * 2:  # what is compiled, is
        side.serve(batch)
    rounds = _of_rounds(drafts, batch)
    limit = _limit(drafts, rounds, rate) if batch == 1 else None
    for at in range(pairs):
        found: dict[Side, float] = {}
        for side in (drafts, plain) if at % 2 else (plain, drafts):
            found[side] = side.serve(batch)
        decoding.append(plain.after_first / drafts.after_first if batch == 1 else 0.0)
        ratios.append(found[drafts] / found[plain])
        speeds.append(found[plain])
        equal += sum(one == two for one, two in zip(plain.replies, drafts.replies, strict=True))
        if limit is not None and at % _LOOK == 0:
            limit.look()
    tokens = sum(map(len, drafts.replies))
    low, middle, high = statistics.quantiles(ratios, n=4)
    line = (
        f"{batch:5}  {middle:.2f} ({low:.2f} … {high:.2f})  {statistics.median(speeds):8.0f}  "
        f"{drafts.accepted / tokens:7.0%}  {equal:5} of {pairs * batch:<5}"
    )
    line += f"  {statistics.mean(rounds.widths):5.1f}" if rounds.widths else "      -"
    if limit is not None:
        bound, after = float(limit), statistics.median(decoding)
        line += f"  {bound:.2f}; {after:.2f} after the first token, of it {after / bound:.2f}"
    print(line, flush=True)
    return equal == pairs * batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="bushel:tiny", choices=("bushel:tiny", *CONFIGS))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4, 8, 32])
    parser.add_argument("--speculate", nargs="+", default=["auto"])
    parser.add_argument("--task", default="talk", choices=("talk", "edit", "schema", "tools"))
    parser.add_argument("--rate", type=float, default=0.8, help="of its drafts that hold")
    parser.add_argument("--tokens", type=int, default=128, help="that a model of a real shape says")
    parser.add_argument("--prompt", type=int, default=16, help="tokens that it reads")
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    print(f"{about_mlx()}, {options.model}, {options.dtype}")
    most, all_equal, rate = max(options.batch), True, None
    for word in options.speculate:
        if options.model == "bushel:tiny":
            plain, drafts = of_tiny(options.task, word, most)
            told = f"{options.task}, {word}"
        else:
            model = make(options.model, getattr(mx, options.dtype))
            rate = options.rate
            told = f"{choose_attention(model, 'auto')}, {rate:.0%} hold"
            plain, drafts = of_network(model, rate, most, options.tokens, options.prompt)
        print(f"{told}: with drafts / without (quartiles)")
        print(
            "batch  ratio               tok/s without  drafted  equal           width  limit alone"
        )
        for batch in options.batch:
            all_equal &= compare(plain, drafts, batch, options.pairs, rate)
    if not all_equal:
        raise SystemExit("replies with drafts differ from those without")


if __name__ == "__main__":
    main()
