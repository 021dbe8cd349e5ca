"""Prefix reuse as dashboards see it.

What happens to requests is counted here, when their prompts begin to run; what the engine counts
itself begins anew with every engine, so its steps are added up (`GrowingCounters`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bushel.core.reuse import HITS, MISSES
from bushel.core.status import CacheStatus, as_json
from bushel.server.observability.request_record import Record

REASONS = (*MISSES, "other")
_NOT_ASKED = ("off", "prompt_logprobs")  # nobody looked

# Label, and where the count and the bytes stand in the engine's status.
_KINDS = (
    ("kv", "nodes", "edge_bytes"),
    ("snapshot", "snapshots", "snapshot_bytes"),
    ("vision", "features", "feature_bytes"),
)


class GrowingCounters:
    """Counters of engines that come and go, as ones that only grow."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self._last: Mapping[str, int] = {}

    def see(self, counts: Mapping[str, int]) -> None:
        """What the present engine has counted so far; nothing: there is none."""
        for name, count in counts.items():
            self.totals[name] += max(0, count - self._last.get(name, 0))
        self._last = dict(counts)


class PrefixMetrics(Collector):
    def __init__(self, model_name: str):
        self._model_name = model_name
        self._asked = self._reused = 0  # tokens
        self._hits: Counter[str] = Counter(dict.fromkeys(HITS, 0))
        self._misses: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._cache = CacheStatus()
        self._evicted, self._moved = GrowingCounters(), GrowingCounters()
        self._removed, self._refused = GrowingCounters(), GrowingCounters()

    # -- what happens ----------------------------------------------------------------------

    def started(self, record: Record) -> None:
        """Its prompt began to run."""
        missed = None if record.hit else record.reason
        if missed is None:
            self._hits[record.hit if record.hit in HITS else "other"] += 1
        else:
            self._misses[missed if missed in REASONS else "other"] += 1
        if missed not in _NOT_ASKED:
            self._asked += record.prompt_tokens
            self._reused += record.cached_tokens

    def engine(self, cache: CacheStatus) -> None:
        """What the engine says of its cache now; nothing while it is gone."""
        self._cache = cache
        self._evicted.see({} if cache.evicted is UNSET else {"": cache.evicted})
        disk = cache.disk
        self._moved.see({} if disk is UNSET else {"written": disk.written, "read": disk.read})
        self._removed.see({} if disk is UNSET else disk.removed)
        self._refused.see({} if disk is UNSET else disk.refused)

    @property
    def counts(self) -> dict[str, Any]:
        """As `/v1/cache` shows them."""
        return {
            "asked_tokens": self._asked,
            "reused_tokens": self._reused,
            "hits": dict(self._hits),
            "misses": dict(self._misses),
            "evicted": self._evicted.totals[""],
        }

    # -- what there is ---------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        yield self._count(
            "vllm:prefix_cache_queries", "Prompt tokens that were looked for.", self._asked
        )
        yield self._count(
            "vllm:prefix_cache_hits", "Prompt tokens that were not computed again.", self._reused
        )
        yield self._counts(
            "bushel:prefix_cache_hit_requests",
            "Requests of whose prompt something was reused, by kind.",
            "kind",
            self._hits,
        )
        yield self._counts(
            "bushel:prefix_cache_missed_requests",
            "Requests whose prompt was computed whole, by reason.",
            "reason",
            self._misses,
        )
        yield self._count(
            "bushel:prefix_cache_evictions",
            "What was let go to make room.",
            self._evicted.totals[""],
        )
        yield from self._memory()
        yield from self._disk()

    def _memory(self) -> Iterator[Metric]:
        cache = as_json(self._cache)
        yield self._gauge("bushel:prefix_cache_limit_bytes", "Room for it.", cache, "limit_bytes")
        yield self._gauge("bushel:prefix_cache_tokens", "Tokens in memory.", cache, "tokens")
        kinds = [kind for kind in _KINDS if kind[1] in cache]
        yield self._gauges(
            "bushel:prefix_cache_entries",
            "Things in memory, by kind.",
            ((kind, cache[count]) for kind, count, _ in kinds),
        )
        yield self._gauges(
            "bushel:prefix_cache_bytes",
            "Their size, by kind.",
            ((kind, cache[size]) for kind, _, size in kinds),
        )

    def _disk(self) -> Iterator[Metric]:
        disk = as_json(self._cache).get("disk", {})
        if not disk and not self._moved.totals:
            return
        for name, told in (
            ("files", "Files of the disk tier."),
            ("bytes", "Their size."),
            ("queued_bytes", "What waits to be written."),
        ):
            yield self._gauge(f"bushel:prefix_cache_disk_{name}", told, disk, name)
        for name in ("written", "read"):
            count = self._moved.totals[name]
            yield self._count(f"bushel:prefix_cache_disk_{name}_files", f"Files {name}.", count)
        yield self._counts(
            "bushel:prefix_cache_disk_removed_files",
            "Files that were removed, by cause.",
            "cause",
            self._removed.totals,
        )
        yield self._counts(
            "bushel:prefix_cache_disk_refused_writes",
            "What was not written, by cause.",
            "cause",
            self._refused.totals,
        )

    def _count(self, name: str, help_text: str, value: int) -> Metric:
        family = CounterMetricFamily(name, help_text, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family

    def _counts(self, name: str, help_text: str, label: str, values: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(name, help_text, labels=["model_name", label])
        for key, value in values.items():
            family.add_metric([self._model_name, key], value)
        return family

    def _gauge(self, name: str, help_text: str, status: Mapping[str, Any], key: str) -> Metric:
        family = GaugeMetricFamily(name, help_text, labels=["model_name"])
        if key in status:
            family.add_metric([self._model_name], status[key])
        return family

    def _gauges(self, name: str, help_text: str, values: Iterable[tuple[str, int]]) -> Metric:
        family = GaugeMetricFamily(name, help_text, labels=["model_name", "kind"])
        for kind, value in values:
            family.add_metric([self._model_name, kind], value)
        return family
