"""What happened, counted, and what should not have."""

from __future__ import annotations

import time
from collections import Counter

_MOST_WRONG = 50  # that are kept in words


class Tally:
    def __init__(self) -> None:
        self.replies: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.hostile: Counter[str] = Counter()
        self.health: Counter[int] = Counter()
        self.slowest_health = 0.0
        self.wrong: list[str] = []
        self.wrong_count = 0
        self._began = time.monotonic()

    def bad(self, what: str) -> None:
        """Something that must not happen."""
        self.wrong_count += 1
        if len(self.wrong) < _MOST_WRONG:
            self.wrong.append(f"[{time.monotonic() - self._began:.0f} s] {what}")
            print(f"WRONG {self.wrong[-1]}", flush=True)

    @property
    def line(self) -> str:
        right = self.replies["right"]
        errors = sum(count for kind, count in self.replies.items() if kind[0].isdigit())
        return (
            f"{time.monotonic() - self._began:.0f} s: {right} right, {errors} typed errors, "
            f"{self.replies['left']} left, {sum(self.hostile.values())} hostile, "
            f"{sum(self.faults.values())} faults, {self.wrong_count} wrong"
        )

    def table(self) -> str:
        lines = []
        for name in ("replies", "hostile", "faults", "health"):
            counts: Counter[object] = getattr(self, name)
            told = ", ".join(f"{kind}: {count}" for kind, count in counts.most_common())
            lines.append(f"{name}: {told}")
        return "\n".join([*lines, f"slowest /health: {self.slowest_health:.2f} s"])
