"""What a dashboard sees at /metrics."""

from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bushel.core.reuse import HITS, MISSES
from bushel.core.status import EngineStatus
from bushel.server.observability.metrics import Metrics
from bushel.server.observability.prefix_metrics import REASONS
from bushel.server.observability.request_record import Record

from .test_logs import record

MODEL = "org/model"
# Names that dashboards for vLLM ask for, and their kinds.
VLLM = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:num_preemptions_total": "counter",
    "vllm:prompt_tokens_total": "counter",
    "vllm:generation_tokens_total": "counter",
    "vllm:prefix_cache_queries_total": "counter",
    "vllm:prefix_cache_hits_total": "counter",
    "vllm:request_success_total": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:request_time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_prefill_time_seconds": "histogram",
    "vllm:request_decode_time_seconds": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
    "vllm:request_inference_time_seconds": "histogram",
    "vllm:request_params_n": "histogram",
    "vllm:request_params_max_tokens": "histogram",
    "vllm:iteration_tokens_total": "histogram",
    "vllm:num_requests_waiting_by_reason": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:spec_decode_num_drafts_total": "counter",
    "vllm:spec_decode_num_draft_tokens_total": "counter",
    "vllm:spec_decode_num_accepted_tokens_total": "counter",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": "counter",
}
LABELLED = (
    "vllm:request_success_total",
    "vllm:num_requests_waiting_by_reason",
    "vllm:cache_config_info",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
)
STATUS: dict[str, Any] = {
    "running": 3,
    "waiting": 2,
    "memory": {
        "active_bytes": 900,
        "peak_bytes": 1000,
        "cache_bytes": 50,
        "state_bytes": 100,
        "state_buffers": 12,
        "limit_bytes": 2000,
        "weights_bytes": 800,
        "promised_bytes": 1100,
    },
}


def seen(metrics: Metrics) -> dict[str, float]:
    body, kind = metrics.render()
    assert kind.startswith("text/plain")
    return samples(body.decode(), MODEL)


def samples(text: str, model: str = "bushel:tiny") -> dict[str, float]:
    """By name; with labels beside the model's as name{label=value}."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if not sample.name.startswith("process_"):
                assert labels.pop("model_name") == model, sample.name
            rest = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            found[sample.name + (f"{{{rest}}}" if rest else "")] = sample.value
    return found


def after(*records: Record) -> dict[str, float]:
    """Of requests that ran, each to its end."""
    metrics = Metrics(MODEL)
    for it in records:
        if it.started is not None:
            metrics.reuse.started(it)
        if it.first_token is not None:
            metrics.prompt_done(it)
            metrics.first_token(it)
        metrics.finished(it)
    return seen(metrics)


def test_dashboards_for_vllm_find_their_metrics() -> None:
    metrics = Metrics(MODEL)
    engine_says(metrics, STATUS, up=True)
    found = seen(metrics)
    body = metrics.render()[0].decode().splitlines()
    for name, kind in VLLM.items():
        assert f"# TYPE {name} {kind}" in body
        suffixes = ("_bucket{le=+Inf}", "_sum", "_count") if kind == "histogram" else ("",)
        if name not in LABELLED:
            assert all(name + suffix in found for suffix in suffixes), name
    for reason in ("stop", "length", "abort", "error"):
        assert found[f"vllm:request_success_total{{finished_reason={reason}}}"] == 0


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("vllm:time_to_first_token_seconds", ("0.001", "0.25", "2560.0")),
        ("vllm:inter_token_latency_seconds", ("0.01", "0.075", "80.0")),
        ("vllm:request_time_per_output_token_seconds", ("0.01", "0.075", "80.0")),
        ("vllm:e2e_request_latency_seconds", ("0.3", "1.5", "7680.0")),
        ("vllm:request_queue_time_seconds", ("0.3", "1.5", "7680.0")),
        ("vllm:request_inference_time_seconds", ("0.3", "1.5", "7680.0")),
        ("vllm:iteration_tokens_total", ("1.0", "8.0", "512.0", "16384.0")),
        ("vllm:request_params_n", ("1.0", "5.0", "20.0")),
    ],
)
def test_buckets_are_vllms(name: str, bounds: tuple[str, ...]) -> None:
    found = seen(Metrics(MODEL))
    assert all(f"{name}_bucket{{le={bound}}}" in found for bound in bounds)


def test_a_finished_request_is_counted() -> None:
    found = after(record(), record(finish_reasons=["length"]))
    assert found["vllm:prompt_tokens_total"] == 240
    assert found["vllm:prefix_cache_queries_total"] == 240
    assert found["vllm:prefix_cache_hits_total"] == 192
    assert found["vllm:request_success_total{finished_reason=stop}"] == 1
    assert found["vllm:request_success_total{finished_reason=length}"] == 1
    assert found["vllm:request_prompt_tokens_sum"] == 240
    assert found["vllm:request_generation_tokens_sum"] == 82
    assert found["vllm:num_preemptions_total"] == 0


def test_guesses_are_counted_by_their_places() -> None:
    metrics = Metrics(MODEL)
    metrics.draft(4, 2)
    metrics.draft(3, 3)
    metrics.draft(1, 0)
    found = seen(metrics)
    assert found["vllm:spec_decode_num_drafts_total"] == 3
    assert found["vllm:spec_decode_num_draft_tokens_total"] == 8
    assert found["vllm:spec_decode_num_accepted_tokens_total"] == 5
    by_place = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    places = [found[f"{by_place}{{position={at}}}"] for at in range(5)]
    assert places == [2, 2, 1, 0, 0]


def test_its_times_are_those_that_vllm_means() -> None:
    found = after(record())
    sums = {
        "vllm:time_to_first_token_seconds": 0.5,  # since it arrived
        "vllm:request_queue_time_seconds": 0.1,  # in the engine's queue
        "vllm:request_prefill_time_seconds": 0.3,
        "vllm:request_decode_time_seconds": 2.0,
        "vllm:request_inference_time_seconds": 2.3,
        "vllm:request_time_per_output_token_seconds": 0.05,
        "vllm:e2e_request_latency_seconds": 2.5,
    }
    for name, total in sums.items():
        assert found[f"{name}_sum"] == pytest.approx(total)
        assert found[f"{name}_count"] == 1


def test_what_a_reply_may_be_is_counted_and_an_embedding_is_none() -> None:
    found = after(record(choices=2, max_tokens=50), record(max_tokens=None))
    assert found["vllm:request_params_n_sum"] == 2
    assert found["vllm:request_params_max_tokens_sum"] == 50
    assert found["vllm:request_params_max_tokens_count"] == 1


def test_a_prompt_and_a_first_token_count_before_the_request_ends() -> None:
    metrics, running = Metrics(MODEL), record()
    metrics.prompt_done(running)
    metrics.first_token(running)
    found = seen(metrics)
    assert found["vllm:prompt_tokens_total"] == 120
    assert found["vllm:time_to_first_token_seconds_sum"] == pytest.approx(0.5)
    metrics.finished(running)
    found = seen(metrics)
    assert found["vllm:prompt_tokens_total"] == 120
    assert found["vllm:time_to_first_token_seconds_count"] == 1


def test_steps_are_counted_with_all_that_they_ran() -> None:
    metrics = Metrics(MODEL)
    for tokens in (0, 1, 500):  # one that ran nothing is none
        metrics.iteration(tokens)
    found = seen(metrics)
    assert found["vllm:iteration_tokens_total_count"] == 2
    assert found["vllm:iteration_tokens_total_sum"] == 501
    assert found["vllm:iteration_tokens_total_bucket{le=256.0}"] == 1


def test_who_waits_is_told_by_reason() -> None:
    metrics = Metrics(MODEL)
    engine_says(metrics, {**STATUS, "waiting": 5, "deferred": 2})
    found = seen(metrics)
    name = "vllm:num_requests_waiting_by_reason"
    assert (found[f"{name}{{reason=capacity}}"], found[f"{name}{{reason=deferred}}"]) == (3, 2)


@pytest.mark.parametrize(("kv_bits", "kind"), [(None, "auto"), (8, "int8")])
def test_how_keys_and_values_are_kept_is_told_in_labels(kv_bits: int | None, kind: str) -> None:
    metrics = Metrics(MODEL, kv_bits=kv_bits)
    engine_says(metrics, cache())
    [told] = [name for name in seen(metrics) if name.startswith("vllm:cache_config_info")]
    assert f"cache_dtype={kind}" in told
    assert "enable_prefix_caching=True" in told
    assert "kv_cache_memory_bytes=1200" in told
    engine_says(metrics, {}, up=False)
    assert not any(name.startswith("vllm:cache_config_info") for name in seen(metrics))


def test_choices_that_run_beside_each_other_are_no_faster_each() -> None:
    reasons = ["stop"] * 4
    found = after(record(choices=4, completion_tokens=164, finish_reasons=reasons))
    assert found["vllm:request_time_per_output_token_seconds_sum"] == pytest.approx(0.05)
    assert found["vllm:request_success_total{finished_reason=stop}"] == 4


def test_a_refused_request_is_an_error_and_nothing_else() -> None:
    found = after(
        Record(
            "a", "chat", MODEL, False, 1, 1.0, finished=1.1, status=404, error="model_not_found"
        ),
        Record("b", "chat", MODEL, False, 1, 1.0, finished=1.1, status=413),
    )
    assert found["bushel:request_errors_total{code=model_not_found}"] == 1
    assert found["bushel:request_errors_total{code=413}"] == 1
    assert found["vllm:e2e_request_latency_seconds_count"] == 0
    assert found["vllm:prompt_tokens_total"] == 0
    ended = [it for name, it in found.items() if name.startswith("vllm:request_success_total")]
    assert ended == [0, 0, 0, 0]


def test_a_client_that_went_away_is_an_abort_and_no_error() -> None:
    """Also when one of its two choices had ended. B47."""
    found = after(record(status=499, choices=2, finish_reasons=["stop"], error="client_gone"))
    assert found["vllm:request_success_total{finished_reason=stop}"] == 1
    assert found["vllm:request_success_total{finished_reason=abort}"] == 1
    assert not any(name.startswith("bushel:request_errors_total") for name in found)


def test_tokens_and_gaps_are_counted_as_they_come() -> None:
    metrics = Metrics(MODEL)
    metrics.tokens(3, [])
    metrics.tokens(4, [0.005, 0.01, 0.3, 100.0])
    metrics.tokens(1, [0.06])
    found = seen(metrics)
    assert found["vllm:generation_tokens_total"] == 8
    name = "vllm:inter_token_latency_seconds"
    assert found[f"{name}_count"] == 5
    assert found[f"{name}_sum"] == pytest.approx(100.375)
    below = {"0.01": 2, "0.05": 2, "0.075": 3, "0.2": 3, "0.3": 4, "80.0": 4, "+Inf": 5}
    assert {key: found[f"{name}_bucket{{le={key}}}"] for key in below} == below
    assert found["bushel:largest_token_gap_seconds"] == 100.0


# -- prefix reuse ------------------------------------------------------------------------------


def test_requests_are_counted_by_what_was_reused_of_their_prompts() -> None:
    found = after(
        record(hit="exact", cached_tokens=119),
        record(hit="fork", cached_tokens=50),
        record(hit="", cached_tokens=0, reason="unknown"),
    )
    name = "bushel:prefix_cache_hit_requests_total"
    assert [found[f"{name}{{kind={kind}}}"] for kind in HITS] == [1, 0, 0, 1, 0]
    assert found["bushel:prefix_cache_missed_requests_total{reason=unknown}"] == 1
    assert found["vllm:prefix_cache_queries_total"] == 360
    assert found["vllm:prefix_cache_hits_total"] == 169


@pytest.mark.parametrize("reason", [*REASONS[:-1], "something nobody thought of"])
def test_a_miss_is_counted_by_its_reason(reason: str) -> None:
    """As vLLM counts them: tokens are asked for where somebody looked."""
    found = after(record(hit="", cached_tokens=0, reason=reason))
    name = "bushel:prefix_cache_missed_requests_total"
    label = reason if reason in REASONS else "other"
    assert {it for it in REASONS if found[f"{name}{{reason={it}}}"]} == {label}
    looked = 0 if reason in ("off", "prompt_logprobs") else 120
    assert found["vllm:prefix_cache_queries_total"] == looked


def test_the_reasons_are_the_engines() -> None:
    assert (*MISSES, "other") == REASONS


def cache(**more: Any) -> dict[str, Any]:
    """An engine's status."""
    kept = {"nodes": 5, "tokens": 99, "edge_bytes": 700, "snapshots": 2, "snapshot_bytes": 200}
    kept |= {"features": 1, "feature_bytes": 100, "evicted": 3, "limit_bytes": 4000}
    return {**STATUS, "cache": {"on": True, **kept, **more}}


def engine_says(
    metrics: Metrics, status: dict[str, Any], *, up: bool = True, preparing: int = 0
) -> None:
    metrics.engine(msgspec.convert(status, EngineStatus), up=up, preparing=preparing)


def test_what_is_kept_is_told_by_kind() -> None:
    metrics = Metrics(MODEL)
    engine_says(metrics, cache(), up=True)
    found = seen(metrics)
    kinds = ("kv", "snapshot", "vision")
    entries = [found[f"bushel:prefix_cache_entries{{kind={kind}}}"] for kind in kinds]
    sizes = [found[f"bushel:prefix_cache_bytes{{kind={kind}}}"] for kind in kinds]
    assert (entries, sizes) == ([5, 2, 1], [700, 200, 100])
    assert found["bushel:prefix_cache_limit_bytes"] == 4000
    assert found["bushel:prefix_cache_tokens"] == 99
    assert found["bushel:prefix_cache_evictions_total"] == 3
    assert not any("cache_disk" in name for name in found)
    engine_says(metrics, {**STATUS, "cache": {"on": False, "why": "it is switched off"}}, up=True)
    assert not any(name.startswith("bushel:prefix_cache_bytes") for name in seen(metrics))


def disk(written: int, **removed: int) -> dict[str, Any]:
    plain = {"files": 4, "bytes": 900, "queued_bytes": 10, "read": 1}
    return cache(disk={**plain, "written": written, "removed": removed, "refused": {"busy": 2}})


def test_counts_of_an_engine_go_on_with_the_next_one() -> None:
    metrics = Metrics(MODEL)
    for status in (disk(5), disk(7, limit=1), disk(7, limit=1)):
        engine_says(metrics, status, up=True)
    engine_says(metrics, {}, up=False)
    gone = seen(metrics)
    assert "bushel:prefix_cache_disk_files" not in gone
    assert gone["bushel:prefix_cache_disk_written_files_total"] == 7
    engine_says(metrics, disk(9, limit=1, damaged=2), up=True)
    found = seen(metrics)
    assert found["bushel:prefix_cache_disk_files"] == 4
    assert found["bushel:prefix_cache_disk_bytes"] == 900
    assert found["bushel:prefix_cache_disk_written_files_total"] == 16
    assert found["bushel:prefix_cache_disk_read_files_total"] == 2
    assert found["bushel:prefix_cache_disk_removed_files_total{cause=limit}"] == 2
    assert found["bushel:prefix_cache_disk_removed_files_total{cause=damaged}"] == 2
    assert found["bushel:prefix_cache_disk_refused_writes_total{cause=busy}"] == 4
    assert found["bushel:prefix_cache_evictions_total"] == 6


# -- the engine --------------------------------------------------------------------------------


def test_the_engine_is_seen_as_it_reports_itself() -> None:
    """A dashboard has the engine's rows, memory, gaps and waits under known names. B53, B61."""
    metrics = Metrics(MODEL)
    engine_says(metrics, STATUS, up=True, preparing=5)
    found = seen(metrics)
    assert found["vllm:num_requests_running"] == 3
    assert found["vllm:num_requests_waiting"] == 2
    assert found["vllm:kv_cache_usage_perc"] == pytest.approx(300 / 1200)
    assert found["bushel:engine_up"] == 1
    assert found["bushel:preparing_requests"] == 5
    assert found["bushel:mlx_active_bytes"] == 900
    assert found["bushel:mlx_peak_bytes"] == 1000
    assert found["bushel:mlx_cache_bytes"] == 50
    assert found["bushel:state_buffers"] == 12


def test_an_idle_engine_uses_none_of_its_memory_for_requests() -> None:
    metrics = Metrics(MODEL)
    engine_says(metrics, {**STATUS, "running": 0, "waiting": 0}, up=True)
    assert seen(metrics)["vllm:kv_cache_usage_perc"] == 0


def test_an_engine_that_is_gone_reports_nothing() -> None:
    """Old numbers would look like a living one. B52."""
    metrics = Metrics(MODEL)
    engine_says(metrics, STATUS, up=True)
    engine_says(metrics, {}, up=False)
    found = seen(metrics)
    assert found["bushel:engine_up"] == 0
    assert found["vllm:num_requests_running"] == 0
    assert "bushel:mlx_active_bytes" not in found
    assert "vllm:kv_cache_usage_perc" not in found


def test_restarts_are_counted_from_zero() -> None:
    metrics = Metrics(MODEL)
    assert seen(metrics)["bushel:engine_restarts_total{reason=died}"] == 0
    metrics.restarted("died")
    metrics.restarted("hung")
    metrics.restarted("died")
    found = seen(metrics)
    assert found["bushel:engine_restarts_total{reason=died}"] == 2
    assert found["bushel:engine_restarts_total{reason=hung}"] == 1


def test_labels_do_not_grow_without_bound() -> None:
    metrics = Metrics(MODEL)
    for at in range(1000):
        metrics.restarted(f"reason {at}")
    found = seen(metrics)
    restarts = [it for name, it in found.items() if name.startswith("bushel:engine_restarts_total")]
    assert len(restarts) < 100
    assert sum(restarts) == 1000


def test_two_servers_in_one_process_do_not_share_counters() -> None:
    one, two = Metrics(MODEL), Metrics(MODEL)
    one.tokens(5, [])
    assert seen(two)["vllm:generation_tokens_total"] == 0


def test_a_strange_model_name_is_still_a_label() -> None:
    metrics = Metrics('a"b\\c\nd')
    metrics.tokens(1, [0.1])
    families = text_string_to_metric_families(metrics.render()[0].decode())
    labels = {sample.labels.get("model_name") for family in families for sample in family.samples}
    assert labels - {None} == {'a"b\\c\nd'}
