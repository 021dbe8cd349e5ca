"""What MLX may hold of this machine's memory: settled when a model is loaded, undone at its close.

On a Mac the GPU's memory is everybody's:

    total       | weights, state, prefixes | freed, for the next step | macOS and the others |
    wired       |--------------------------|                            stays resident
    limit       |--------------------------|                            what Bushel promises
    cache limit                            |--------------------------|

Without a wired limit macOS pages weights out between steps: 0.7 tokens a second instead of 31 were
seen of a model near the size of its machine. With everything wired, Macs froze. What is freed MLX
keeps for the next step, without any end unless it is told one: 108 GB were seen for a need of 34.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from bushel.core.machine_memory import total_memory
from bushel.models.device import ON_CPU

_LEAST_RESERVE = 4 << 30  # bytes of a Mac's memory that are not Bushel's, or a quarter of it
_MANY_BUFFERS = 1 << 62  # where a process may hold as many as it likes
# Freed memory that is kept: a sixteenth of all, or a gigabyte if that is not a quarter of it.
_LEAST_CACHE = 1 << 30


def _on_metal() -> bool:
    return bool(mx.metal.is_available()) and not ON_CPU


def _recommended() -> int:
    """Bytes that a Mac's GPU works with well."""
    return int(mx.device_info().get("max_recommended_working_set_size", 0)) or total_memory()


def _unreserved() -> int:
    total = total_memory()
    return total - max(_LEAST_RESERVE, total // 4)


def memory_limit(beside: int = 0) -> int:
    """Bytes that MLX should stay under on this machine, on which others may take so many.

    Half of a small machine is its own all the same: the others seldom take all they may.
    """
    total = total_memory()
    shared = max(total // 2, total - beside)
    if _on_metal():
        return min(_recommended(), max(total // 2, _unreserved()), shared)
    return min(int(mx.get_memory_limit()), shared) if ON_CPU else int(mx.get_memory_limit())


def usable(limit: int, headroom: int | None = None) -> int:
    """Of a limit, what is not left alone: a twentieth, where nobody says how much."""
    return limit - (limit // 20 if headroom is None else headroom)


def buffer_limit() -> int:
    """Buffers that this process may hold at once."""
    if not _on_metal():
        return _MANY_BUFFERS
    return int(mx.device_info().get("resource_limit", 0)) or _MANY_BUFFERS


def cache_limit(limit: int) -> int:
    """Bytes of freed memory to keep, where so many may be used in all."""
    return max(limit // 16, min(_LEAST_CACHE, limit // 4))


def wired_limit(promised: int) -> int:
    """Bytes to keep resident, where so many are promised; none but on Metal."""
    if not _on_metal():
        return 0
    return min(promised, _recommended(), max(total_memory() // 2, _unreserved()))


@dataclass(frozen=True)
class MemoryClaim:
    """What was so before."""

    before: tuple[tuple[Callable[[int], int], int], ...] = ()

    def release(self) -> None:
        for setting, value in reversed(self.before):
            setting(value)


def claim(limit: int, promised: int) -> MemoryClaim:
    """Let MLX keep to a limit. promised: bytes of it that weights and rows may take.

    To be called between steps: nothing may be on its way.
    """
    if ON_CPU:
        return MemoryClaim()
    mx.synchronize()
    settings: list[tuple[Callable[[int], int], int]] = [
        (mx.set_memory_limit, limit),
        (mx.set_cache_limit, cache_limit(limit)),
    ]
    if _on_metal():
        settings.append((mx.set_wired_limit, wired_limit(promised)))
    return MemoryClaim(tuple((setting, int(setting(value))) for setting, value in settings))


def in_use() -> dict[str, int]:
    """Bytes that MLX holds, and has held at most."""
    return {
        "active_bytes": mx.get_active_memory(),
        "peak_bytes": mx.get_peak_memory(),
        "cache_bytes": mx.get_cache_memory(),
    }


def give_back() -> None:
    """What was freed goes back to the system. Whatever runs would wait for that."""
    mx.clear_cache()
