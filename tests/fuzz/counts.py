"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from tests.fuzz.answers import Answer, Verdict


@dataclass
class Counts:
    workloads: int = 0
    requests: int = 0
    refusals: int = 0  # of the requests, those that are refused alone, too
    tokens: int = 0
    cached_tokens: int = 0
    disk_hits: int = 0
    evictions: int = 0
    aborts: int = 0
    restarts: int = 0
    ties: int = 0
    mismatches: int = 0
    families: set[str] = field(default_factory=set)

    def add(self, other: Counts) -> None:
        for it in fields(self):
            mine, others = getattr(self, it.name), getattr(other, it.name)
            setattr(self, it.name, mine | others if it.name == "families" else mine + others)

    def __str__(self) -> str:
        def told(name: str) -> str:
            value = getattr(self, name)
            return f"{len(value) if isinstance(value, set) else value} {name.replace('_', ' ')}"

        return ", ".join(told(it.name) for it in fields(self))


@dataclass
class Outcome:
    """Of one workload."""

    wrong: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)

    def judge(self, ask: int, got: Answer, alone: Answer, verdict: Verdict) -> None:
        """One request of it was answered, and would have been answered so alone."""
        self.counts.requests += 1
        self.counts.refusals += alone.error is not None
        self.counts.tokens += sum(len(choice.tokens) for choice in got.choices)
        self.counts.cached_tokens += got.cached
        self.counts.ties += verdict.tie
        if verdict.wrong:
            self.wrong.append(f"ask {ask}, {got.cached} cached: {verdict.wrong}")
