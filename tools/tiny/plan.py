"""One training run, as numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    seed: int = 7
    steps: int = 16_300
    together: int = 3  # shards in a step: 49,152 tokens
    fresh: int = 2  # of them new ones; others were seen before
    muon: float = 0.02  # rate of the matrices inside the layers; 0: AdamW for them as well
    rate: float = 3e-3  # rate of everything else
    final: float = 0.0  # of the rates, at the end
    warmup: int = 300
    decay: float = 0.05
    clip: float = 1.0
    ahead: float = 0.2  # weight of the MTP layer's loss
    look: float = 0.6  # weight of naming what an image token shows, at the start
    long_from: float = 0.6  # share of the steps after which long rows join
    long_every: int = 4  # of the steps then, one is of long rows; 0: none
    probe_every: int = 6000

    def share_at(self, step: int) -> float:
        """Of the rates: warm up, hold, and in the last part fall in a straight line."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        late = max(0.0, (step / self.steps - 0.45) / 0.55)
        return 1 - late * (1 - self.final)

    def look_at(self, step: int) -> float:
        return self.look * max(0.15, 1 - step / (0.6 * self.steps))

    def is_long(self, step: int) -> bool:
        late = step >= self.long_from * self.steps
        return late and self.long_every > 0 and step % self.long_every == 0

    def long_steps(self, step: int) -> int:
        """How many of the first `step` steps are of long rows."""
        return sum(self.is_long(at) for at in range(step))
