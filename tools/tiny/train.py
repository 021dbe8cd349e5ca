"""The training loop, in legs: each continues from what the one before left in the run folder."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tools.tiny import optimizer
from tools.tiny.config import Sizes
from tools.tiny.data import ENOUGH, Pool, Shards, held_out, join, loader
from tools.tiny.export import write_checkpoint
from tools.tiny.graph import Losses, Recorded
from tools.tiny.model.whole import Rows, Tiny, targets
from tools.tiny.plan import Plan
from tools.tiny.scene import COLOUR_NAMES, KINDS

LOG_EVERY = 25


class Leg:
    """Model, optimizer and data of one leg."""

    def __init__(self, plan: Plan, run: Path, tokenizer: Path, workers: int, device: str):
        self.plan, self.run, self.tokenizer = plan, run, tokenizer
        self.device = torch.device(device)
        self.cuda = self.device.type == "cuda"
        torch.manual_seed(plan.seed)
        self.model = Tiny(Sizes(), len(KINDS), len(COLOUR_NAMES)).to(self.device)
        self.optimizers = optimizer.make(self.model, plan.muon, plan.rate, plan.decay)
        self.step = self._restore()
        self.workers = workers
        self.look = torch.zeros((), device=self.device)
        self.update: dict[bool, Callable[[Rows], Losses]] = {
            False: self._update,
            True: self._update,
        }
        if self.cuda:
            self._compile()
            self.update = {long: Recorded(self._update) for long in self.update}
        self.pools: dict[bool, Pool] = {}
        self._pool(False)
        self.probes = held_out(tokenizer, plan.seed, 3 * plan.together)

    def _compile(self) -> None:
        # The delta rule multiplies in float32; its inputs come from bfloat16 anyway.
        torch.set_float32_matmul_precision("high")
        torch._dynamo.config.recompile_limit = 64
        language = self.model.model.language_model
        for layer in [*language.layers, *self.model.mtp.layers, *self.model.model.visual.blocks]:
            layer.compile(dynamic=False)
        self.model.predict = torch.compile(self.model.predict, dynamic=False)

    def _restore(self) -> int:
        """The whole state if it is there, otherwise weights alone, otherwise a new start."""
        whole, weights = self.run / "state.pt", self.run / "weights.pt"
        if whole.exists():
            state = torch.load(whole, map_location=self.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            for one, saved in zip(self.optimizers, state["optimizers"], strict=True):
                one.load_state_dict(saved)
            return int(state["step"])
        if weights.exists():
            state = torch.load(weights, map_location=self.device, weights_only=True)
            self.model.load_state_dict({k: v.float() for k, v in state["model"].items()})
            return int(state["step"])
        return 0

    def save(self) -> None:
        state = {"step": self.step, "model": self.model.state_dict()}
        part = self.run / "state.part"
        torch.save({**state, "optimizers": [it.state_dict() for it in self.optimizers]}, part)
        part.rename(self.run / "state.pt")
        half = {name: value.bfloat16() for name, value in state["model"].items()}
        torch.save({"step": self.step, "model": half}, self.run / "weights.pt")
        write_checkpoint(self.run / "checkpoint", Sizes(), self.model.state_dict())

    def _pool(self, long: bool) -> Pool:
        plan = self.plan
        if long not in self.pools:
            steps = plan.long_steps(self.step) if long else self.step - plan.long_steps(self.step)
            first = steps * plan.fresh + (ENOUGH if steps else 0)
            shards = Shards(self.tokenizer, plan.seed, long, first)
            workers = max(1, self.workers // 4) if long and self.workers else self.workers
            source = loader(shards, workers, self.cuda)
            self.pools[long] = Pool(source, self.device, self.step, plan.fresh, plan.together)
        return self.pools[long]

    def half(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self.cuda else nullcontext()

    def one_step(self) -> Losses:
        plan = self.plan
        long = plan.is_long(self.step)
        rows = self._pool(long).batch()
        optimizer.set_rates(self.optimizers, plan.share_at(self.step))
        self.look.fill_(plan.look_at(self.step))
        self.step += 1
        return self.update[long](rows)

    def _update(self, rows: Rows) -> Losses:
        self.model.zero_grad(set_to_none=True)
        with self.half():
            losses = self.model.losses(rows)
        total = losses["text"] + self.plan.ahead * losses["ahead"]
        total = total + self.look * (losses["kind"] + 0.5 * losses["colour"])
        total.backward()
        losses["norm"] = nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)
        for one in self.optimizers:
            one.step()
        return {name: value.detach() for name, value in losses.items()}

    def probe(self) -> dict[str, float]:
        """Share of held-out conversations in which every trained token is the likeliest."""
        right: dict[str, list[bool]] = defaultdict(list)
        together = self.plan.together
        for at in range(0, len(self.probes), together):
            some = self.probes[at : at + together]
            shards = [{key: value.to(self.device) for key, value in one.items()} for one, _ in some]
            rows = join(shards)
            # Shapes and gradients as in training, or everything would be compiled again.
            with self.half():
                out, ahead, _ = self.model.hidden(rows)
                chosen = self.model.logits(out.detach()).argmax(-1)
                drafted = self.model.logits(ahead.detach()).argmax(-1)
            wanted, later = targets(rows, 1), targets(rows, 2)
            wrong = ((chosen != wanted) & (wanted >= 0)).cpu()
            documents = rows.document.cpu()
            height = len(documents) // together
            for number, (_, placed) in enumerate(some):
                for row, document, talk in placed:
                    mine = documents[number * height + row] == document
                    missed = bool(wrong[number * height + row][mine].any())
                    right[talk.kind].append(not missed)
            asked = later >= 0
            right["mtp"] += (drafted[asked] == chosen.roll(-1, 1)[asked]).cpu().tolist()
        return {kind: sum(hits) / len(hits) for kind, hits in sorted(right.items())}


def train(
    plan: Plan, run: Path, tokenizer: Path, minutes: float, workers: int, device: str
) -> bool:
    """Trains until the plan or the time is over; True when the plan is done."""
    run.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    leg = Leg(plan, run, tokenizer, workers, device)
    print(f"step {leg.step} of {plan.steps}; {json.dumps(asdict(plan))}", flush=True)
    sums: dict[str, torch.Tensor] = {}
    last, count = time.monotonic(), 0
    with (run / "log.jsonl").open("a") as log:

        def note(entry: dict[str, Any]) -> None:
            log.write(json.dumps(entry) + "\n")
            log.flush()

        while leg.step < plan.steps and time.monotonic() - begun < minutes * 60:
            losses = leg.one_step()
            sums = {k: sums.get(k, torch.zeros((), device=v.device)) + v for k, v in losses.items()}
            count += 1
            if leg.step % LOG_EVERY == 0:
                mean = {key: round(float(value) / count, 4) for key, value in sums.items()}
                now = time.monotonic()
                rate, sums, count, last = count / (now - last), {}, 0, now
                note({"step": leg.step, "minutes": round((now - begun) / 60, 3), **mean})
                if leg.step % (4 * LOG_EVERY) == 0 or leg.step <= 4 * LOG_EVERY:
                    print(f"{leg.step} {rate:.2f} steps/s {mean}", flush=True)
            if leg.step % plan.probe_every == 0:
                shares = leg.probe()
                note({"step": leg.step, "probe": shares})
                print({kind: round(share, 3) for kind, share in shares.items()}, flush=True)
                leg.save()
                last = time.monotonic()
        shares = leg.probe()
        note({"step": leg.step, "probe": shares})
        print({kind: round(share, 3) for kind, share in shares.items()}, flush=True)
        leg.save()
    spent = (time.monotonic() - begun) / 60
    print(f"leg ends at step {leg.step} after {spent:.2f} minutes", flush=True)
    return leg.step >= plan.steps
