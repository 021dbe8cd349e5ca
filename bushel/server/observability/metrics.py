"""Counters for Prometheus, at `/metrics`.

Those that mean the same as in vLLM have vLLM's names and buckets, so that dashboards made for it
work; Bushel's own begin with `bushel:`. What the engine reports is read when someone asks, what
happens to requests is counted when it happens. Everything belongs to the event loop.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec import UNSET
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from bushel.core.status import Count, EngineStatus
from bushel.server.observability import logs
from bushel.server.observability.loop_probe import LoopProbe
from bushel.server.observability.prefix_metrics import PrefixMetrics
from bushel.server.observability.request_record import Record

# vLLM's bounds, in seconds.
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_FIRST = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
# vLLM ends this series at the model's context.
_TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5))

_CHOICES = (1.0, 2.0, 5.0, 10.0, 20.0)
# Of one step: a token for each row that decodes, and chunks of prompts.
_STEP = (1.0, *(float(1 << power) for power in range(3, 15)))

_REASONS = ("stop", "length", "abort", "error")
_RESTARTS = ("died", "hung")
_POSITIONS = tuple(map(str, range(7)))  # as deep as guesses are
# Label values that nobody thought of are counted together beyond this.
_MOST_LABELS = 64


class Gaps(Collector):
    """`vllm:inter_token_latency_seconds`, for many observations at once.

    One for every token of every reply; `Histogram.observe` takes 1.4 us for each, this 0.2.
    """

    def __init__(self, model_name: str):
        self._model_name = model_name
        self._counts = [0] * (len(_TOKEN) + 1)
        self._sum = 0.0
        self.largest = 0.0

    def add(self, gaps: Sequence[float]) -> None:
        for gap in gaps:
            self._counts[bisect_left(_TOKEN, gap)] += 1
        self._sum += sum(gaps)
        self.largest = max(self.largest, *gaps) if gaps else self.largest

    def collect(self) -> Iterator[HistogramMetricFamily | GaugeMetricFamily]:
        bounds = [*map(str, _TOKEN), "+Inf"]
        family = HistogramMetricFamily(
            "vllm:inter_token_latency_seconds",
            "Time between two tokens of one reply.",
            labels=["model_name"],
        )
        counts = list(zip(bounds, accumulate(self._counts), strict=True))
        family.add_metric([self._model_name], counts, self._sum)
        yield family
        largest = GaugeMetricFamily(
            "bushel:largest_token_gap_seconds",
            "Longest time between two tokens of one reply since the start.",
            labels=["model_name"],
        )
        largest.add_metric([self._model_name], self.largest)
        yield largest


def _promised(status: EngineStatus) -> float | None:
    """The share of what the weights leave that admitted rows may come to need; 1: no more fit."""
    memory = status.memory
    limit, weights, promised = memory.limit_bytes, memory.weights_bytes, memory.promised_bytes
    if limit is UNSET or weights is UNSET or promised is UNSET or limit <= weights:
        return None
    if not status.running:
        return 0.0  # `promised_bytes` has room for running a prompt even when there is none
    return min(1.0, max(0.0, (promised - weights) / (limit - weights)))


def _of_memory(name: str) -> Callable[[EngineStatus], float | None]:
    def value(status: EngineStatus) -> float | None:
        count: Count = getattr(status.memory, name)
        return None if count is UNSET else count

    return value


# Name, help, and where it stands in the engine's status; None there: no sample.
_GAUGES: tuple[tuple[str, str, Callable[[EngineStatus], float | None]], ...] = (
    ("vllm:num_requests_running", "Replies whose prompt or tokens are being computed.",
     lambda status: status.running),
    ("vllm:num_requests_waiting", "Replies that wait for their prompt to be started.",
     lambda status: status.waiting),
    ("vllm:kv_cache_usage_perc", "Share of the memory for requests that is promised. 1 is all.",
     _promised),
    ("bushel:mlx_active_bytes", "Memory that MLX has in use.", _of_memory("active_bytes")),
    ("bushel:mlx_peak_bytes", "Most memory that MLX had in use.", _of_memory("peak_bytes")),
    ("bushel:mlx_cache_bytes", "Free memory that MLX keeps.", _of_memory("cache_bytes")),
    ("bushel:memory_limit_bytes", "Memory that may be used.", _of_memory("limit_bytes")),
    ("bushel:state_bytes", "State of the replies that decode.", _of_memory("state_bytes")),
    ("bushel:state_buffers", "Buffers of that state.", _of_memory("state_buffers")),
)  # fmt: skip


class EngineState(Collector):
    """What the engine said last; nothing of it while it is gone."""

    def __init__(self, model_name: str, *, front: bool = True, kv_bits: int | None = None):
        self._model_name = model_name
        self._front = front
        self._kv_bits = kv_bits
        self.status = EngineStatus()
        self.up = False
        self.preparing = 0

    def _gauge(self, name: str, help_text: str, value: float | None) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, help_text, labels=["model_name"])
        if value is not None:
            family.add_metric([self._model_name], value)
        return family

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield self._gauge("bushel:engine_up", "Whether the engine serves.", float(self.up))
        yield self._gauge(
            "bushel:preparing_requests",
            "Requests whose prompts are being templated, tokenized or decoded.",
            self.preparing,
        )
        if self._front:
            dropped = CounterMetricFamily(
                "bushel:log_lines_dropped",
                "Lines of the log that nobody read in time.",
                labels=["model_name"],
            )
            dropped.add_metric([self._model_name], logs.dropped())
            yield dropped
        for name, told, value in _GAUGES:
            yield self._gauge(name, told, value(self.status))
        yield self._waiting()
        yield self._cache_config()

    def _waiting(self) -> GaugeMetricFamily:
        """By vLLM's two reasons."""
        family = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Replies that wait, for room (capacity) or for a file or a grammar (deferred).",
            labels=["model_name", "reason"],
        )
        deferred = self.status.deferred
        for reason, count in (
            ("capacity", max(0, self.status.waiting - deferred)),
            ("deferred", deferred),
        ):
            family.add_metric([self._model_name, reason], count)
        return family

    def _cache_config(self) -> GaugeMetricFamily:
        """vLLM's labels, as far as they mean something here: there are no blocks to count."""
        status, memory = self.status, self.status.memory
        limit, weights = memory.limit_bytes, memory.weights_bytes
        known = limit is not UNSET and weights is not UNSET
        labels = {
            "model_name": self._model_name,
            "block_size": "1",
            "cache_dtype": f"int{self._kv_bits}" if self._kv_bits else "auto",
            "enable_prefix_caching": str(status.cache.on),
            "kv_cache_memory_bytes": str(limit - weights) if known else "None",  # type: ignore[operator]
            "num_gpu_blocks": "None",
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info",
            "How keys and values are kept, in labels; it is always 1.",
            labels=list(labels),
        )
        if self.up:
            family.add_metric(list(labels.values()), 1)
        return family


class Metrics:
    """front: with what concerns the process; one model of a server has it. kv_bits: of the engine's
    options.
    """

    def __init__(self, model_name: str, *, front: bool = True, kv_bits: int | None = None):
        self._model_name = model_name
        self._registry = CollectorRegistry()
        self._gaps = Gaps(model_name)
        self._engine = EngineState(model_name, front=front, kv_bits=kv_bits)
        self.reuse = PrefixMetrics(model_name)
        self.loop = LoopProbe(model_name)
        for collector in (self._gaps, self._engine, self.reuse):
            self._registry.register(collector)
        if front:
            self._registry.register(self.loop)
            ProcessCollector(registry=self._registry)  # its own memory and file descriptors
        self._labels: dict[Counter, set[str]] = {}
        self._count_tokens()
        self._count_requests()
        self._time_requests()

    # -- what there is ---------------------------------------------------------------------

    def _counter(self, name: str, help_text: str) -> Counter:
        counter = Counter(name, help_text, ["model_name"], registry=self._registry)
        return counter.labels(self._model_name)

    def _labelled(
        self, name: str, help_text: str, label: str, known: Sequence[str] = ()
    ) -> Counter:
        """One count per value of the label; those that are known begin at zero."""
        counter = Counter(name, help_text, ["model_name", label], registry=self._registry)
        self._labels[counter] = set(known)
        for value in known:
            counter.labels(self._model_name, value)
        return counter

    def _histogram(self, name: str, help_text: str, bounds: Sequence[float]) -> Histogram:
        histogram = Histogram(
            name, help_text, ["model_name"], registry=self._registry, buckets=tuple(bounds)
        )
        return histogram.labels(self._model_name)

    def _count_tokens(self) -> None:
        self._prompt = self._counter("vllm:prompt_tokens", "Prompt tokens, reused ones too.")
        self._generated = self._counter("vllm:generation_tokens", "Tokens of replies.")
        self._preempted = self._counter(
            "vllm:num_preemptions", "Replies that were put back to make room for others."
        )
        self._preemptions = 0  # of the present engine
        self._drafts = self._counter("vllm:spec_decode_num_drafts", "Guesses of tokens ahead.")
        self._drafted = self._counter("vllm:spec_decode_num_draft_tokens", "Tokens of guesses.")
        self._accepted = self._counter(
            "vllm:spec_decode_num_accepted_tokens", "Tokens of guesses that were said."
        )
        self._accepted_at = self._labelled(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Tokens of guesses that were said, by their place in the guess, from 0.",
            "position",
            _POSITIONS,
        )

    def _count_requests(self) -> None:
        self._success = self._labelled(
            "vllm:request_success", "Replies that ended, by reason.", "finished_reason", _REASONS
        )
        self._requests = self._labelled("bushel:requests", "Requests that ended, by API.", "api")
        self._errors = self._labelled(
            "bushel:request_errors", "Requests that were answered with an error, by code.", "code"
        )
        self._restarts = self._labelled(
            "bushel:engine_restarts", "Engines that had to be replaced.", "reason", _RESTARTS
        )
        self._loads = self._counter("bushel:model_loads", "Times that the model was loaded.")
        self._unloads = self._counter("bushel:model_unloads", "Times that it was unloaded.")

    def _time_requests(self) -> None:
        make = self._histogram
        self._first = make(
            "vllm:time_to_first_token_seconds", "From arrival to the first token.", _FIRST
        )
        self._per_token = make(
            "vllm:request_time_per_output_token_seconds",
            "Mean time between two tokens of a request's replies.",
            _TOKEN,
        )
        self._total = make("vllm:e2e_request_latency_seconds", "From arrival to the end.", _REQUEST)
        self._queued = make(
            "vllm:request_queue_time_seconds", "From the engine's queue to the prompt.", _REQUEST
        )
        self._prefill = make(
            "vllm:request_prefill_time_seconds", "From the prompt to the first token.", _REQUEST
        )
        self._decode = make(
            "vllm:request_decode_time_seconds", "From the first token to the last.", _REQUEST
        )
        self._inference = make(
            "vllm:request_inference_time_seconds", "From the prompt to the last token.", _REQUEST
        )
        self._prompts = make("vllm:request_prompt_tokens", "Tokens of prompts.", _TOKENS)
        self._replies = make("vllm:request_generation_tokens", "Tokens of replies.", _TOKENS)
        self._choices = make("vllm:request_params_n", "Replies that requests ask for.", _CHOICES)
        self._limits = make(
            "vllm:request_params_max_tokens", "Tokens that replies may have.", _TOKENS
        )
        self._steps = make(
            "vllm:iteration_tokens_total", "Tokens of prompts and replies in one step.", _STEP
        )

    # -- what happens ----------------------------------------------------------------------

    def tokens(self, count: int, gaps: Sequence[float]) -> None:
        """Tokens that arrived, and the time since the one before for each that had one."""
        self._generated.inc(count)
        self._gaps.add(gaps)

    def draft(self, drafted: int, accepted: int) -> None:
        """Tokens that were guessed for one step of a reply, and how many of them were said."""
        self._drafts.inc()
        self._drafted.inc(drafted)
        self._accepted.inc(accepted)
        for position in range(accepted):
            self._inc(self._accepted_at, str(position))

    def iteration(self, tokens: int) -> None:
        """A step of the engine has run so many."""
        if tokens:
            self._steps.observe(tokens)

    def prompt_done(self, record: Record) -> None:
        """All of its prompt has run."""
        self._prompt.inc(record.prompt_tokens)

    def first_token(self, record: Record) -> None:
        """Its first token is out."""
        assert record.first_token is not None
        self._first.observe(record.first_token - record.arrived)

    def finished(self, record: Record) -> None:
        """A request has its answer, whatever it is. To be called once for each."""
        gone = record.status == 499
        missing = record.choices - len(record.finish_reasons) if gone else 0
        self._inc(self._requests, record.api)
        for reason in (*record.finish_reasons, *["abort"] * missing):
            self._inc(self._success, reason)
        if not gone and (record.error is not None or record.status >= 400):
            self._inc(self._errors, record.error or str(record.status))
        if record.first_token is not None:
            self._prompts.observe(record.prompt_tokens)
            self._replies.observe(record.completion_tokens)
        if record.max_tokens is not None:
            self._choices.observe(record.choices)
            self._limits.observe(record.max_tokens)
        self._times(record)

    def _times(self, record: Record) -> None:
        """Each where both of its ends happened."""
        accepted, started = record.accepted, record.started
        first, last = record.first_token, record.last_token
        if accepted is not None and started is not None:
            self._queued.observe(started - accepted)
        if started is not None and first is not None:
            self._prefill.observe(first - started)
        if first is not None and last is not None:
            self._decode.observe(last - first)
        if started is not None and last is not None:
            self._inference.observe(last - started)
        if record.rate:
            self._per_token.observe(record.choices / record.rate)
        if accepted is not None and record.finished is not None:
            self._total.observe(record.finished - record.arrived)

    def engine(self, status: EngineStatus, up: bool, *, preparing: int = 0) -> None:
        """What the engine says of itself now, nothing if it is gone, and the front of its queue."""
        self._engine.status, self._engine.up = status, up
        self._engine.preparing = preparing
        self._preempted.inc(max(0, status.preemptions - self._preemptions))
        self._preemptions = status.preemptions
        self.reuse.engine(status.cache)

    def restarted(self, why: str) -> None:
        """why: "died" or "hung"; the log has the story."""
        self._inc(self._restarts, why)

    def _inc(self, counter: Counter, value: str) -> None:
        known = self._labels[counter]
        if value not in known and len(known) >= _MOST_LABELS:
            value = "other"
        known.add(value)
        counter.labels(self._model_name, value).inc()

    def loaded(self) -> None:
        """The model, from its files."""
        self._loads.inc()

    def unloaded(self) -> None:
        self._unloads.inc()

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()

    def render(self) -> tuple[bytes, str]:
        """The answer to a scrape, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class AllMetrics:
    """Those of several models as one answer: a name is told once, with the samples of all."""

    def __init__(self, metrics: Sequence[Metrics]):
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for metrics in self._metrics:
            for family in metrics.collect():
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        return families.values()

    def render(self) -> tuple[bytes, str]:
        return generate_latest(self), CONTENT_TYPE_LATEST
