"""Every cell of a sweep in turn, each after a warm-up, for as many rounds as are wanted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bushel.commands.bench.figures import Cell, CellRun
from bushel.commands.bench.load import CellLoad, chat_body
from bushel.commands.bench.measured_server import MeasuredServer
from bushel.commands.bench.prompts import PromptMaker
from bushel.commands.server_client import ServerClient, ServerError

_WARM_TOKENS = 16  # of a reply that only warms up


@dataclass(frozen=True)
class SweepPlan:
    concurrency: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    output_tokens: int
    requests: int | None  # of each cell; None: four for each at once
    rounds: int
    shared_prefix: int
    seed: int
    timeout: float

    def cells(self) -> list[Cell]:
        pairs = itertools.product(self.prompt_tokens, self.concurrency)
        return [Cell(rows, prompt, self.output_tokens) for prompt, rows in pairs]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Sweep:
    """trouble: why it ended before its time; empty if it did not."""

    def __init__(self, server: MeasuredServer, plan: SweepPlan, show: Callable[[str], None]):
        self._server, self._plan, self._show = server, plan, show
        self._prompts: PromptMaker | None = None
        self.trouble = ""

    def run(self) -> Iterator[CellRun]:
        """What was measured, as it comes. The last one may be interrupted."""
        plan = self._plan
        cells = plan.cells()
        self._show("counting tokens …")
        self._prompts = self._prompt_maker()
        for number in range(plan.rounds):
            for at, cell in enumerate(cells[:: -1 if number % 2 else 1]):
                done = number * len(cells) + at
                words = f"{done + 1} of {plan.rounds * len(cells)}: {cell.concurrency} at once, "
                words += f"{cell.prompt_tokens:,} tokens of prompt"
                try:
                    result = self._cell(cell, number, words)
                except ServerError as error:  # while prompts were made
                    self.trouble = str(error)
                    return
                yield result
                if result.interrupted:
                    return
                if self._gone(result):
                    self.trouble = f"{self._server.to.url} is gone; nothing more is asked."
                    return

    def _cell(self, cell: Cell, number: int, words: str) -> CellRun:
        count = self._plan.requests or 4 * cell.concurrency
        self._show(f"{words}: warm-up")
        warm = Cell(cell.concurrency, cell.prompt_tokens, min(_WARM_TOKENS, cell.output_tokens))
        warmed = self._load().send(warm, number, self._made(cell, min(count, cell.concurrency)))
        if warmed.interrupted:
            return CellRun(cell, number, 0.0, [], interrupted=True)
        prompts = self._made(cell, count)
        load = self._load(lambda done: self._show(f"{words}: {done} of {count} answers"))
        return load.send(cell, number, prompts)

    def _load(self, on_answer: Callable[[int], None] = lambda _: None) -> CellLoad:
        server = self._server
        return CellLoad(server.to, server.model, self._plan.timeout, on_answer)

    def _made(self, cell: Cell, count: int) -> list[str]:
        assert self._prompts is not None
        return [self._prompts.make(cell.prompt_tokens) for _ in range(count)]

    def _prompt_maker(self) -> PromptMaker:
        exact = self._server.tokens("a") is not None
        count = self._counted if exact else self._asked
        plan = self._plan
        return PromptMaker(count, exact=exact, seed=plan.seed, shared=plan.shared_prefix)

    def _counted(self, prompt: str) -> int:
        return self._server.tokens(prompt) or 0

    def _asked(self, prompt: str) -> int:
        """By a request for one token, of a server that does not count otherwise."""
        body = {**chat_body(self._server.model, prompt, 1), "stream": False}
        del body["stream_options"]
        client = ServerClient(self._server.to.url, self._server.to.key, self._plan.timeout)
        usage = client.post("/v1/chat/completions", body)["usage"]
        return int(usage["prompt_tokens"])

    def _gone(self, result: CellRun) -> bool:
        """Whether nobody answers any more, which a server that refuses everything does."""
        if any(not one.error for one in result.requests):
            return False
        try:
            ServerClient(self._server.to.url, self._server.to.key, 30.0).models()
        except ServerError as error:
            return error.status == 0
        return False
