"""What a run came to."""

from __future__ import annotations

from dataclasses import dataclass, field, fields


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
