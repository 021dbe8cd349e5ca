"""Dashboards and load balancers read /metrics by vLLM's names (B53)."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.depth import one_in
from tests.peers.conftest import MODEL
from tests.peers.three_apis import APIS, ask, body_of, events, streaming, text_of
from tests.server.server_process import Server, until

HISTOGRAMS = (
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:request_params_n",
    "vllm:request_params_max_tokens",
    "vllm:iteration_tokens_total",
)
GAUGES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
)
COUNTERS = (
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:num_preemptions_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:request_success_total",
)
LONG: dict[str, Any] = {"tokens": 100_000, "ignore_eos": True, "temperature": 0}  # as it has room


def scraped(server: Server) -> dict[str, float]:
    """Each name's value, summed over what labels tell apart."""
    text = server.http.get("/metrics").raise_for_status().text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.startswith("process_"):
                assert sample.labels["model_name"] == MODEL
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@pytest.fixture(scope="module")
def found(server: Server) -> dict[str, float]:
    ask(server, "chat", tokens=4)
    return scraped(server)


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_a_histogram_has_its_parts(name: str, found: dict[str, float]) -> None:
    assert {f"{name}_bucket", f"{name}_sum", f"{name}_count"} <= found.keys()
    assert found[f"{name}_count"] > 0


@pytest.mark.parametrize("name", [*GAUGES, *COUNTERS])
def test_a_number_is_there(name: str, found: dict[str, float]) -> None:
    assert name in found


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_a_request_is_counted_in_every_api(api: str, server: Server) -> None:
    before = scraped(server)
    reply = ask(server, api, tokens=7, ignore_eos=True)
    after = scraped(server)

    def grown(name: str) -> float:
        return after[name] - before[name]

    assert grown("vllm:prompt_tokens_total") == reply.prompt
    assert grown("vllm:generation_tokens_total") == reply.completion == 7
    assert grown("vllm:request_success_total") == 1
    assert grown("vllm:request_params_max_tokens_sum") == 7
    assert grown("vllm:request_params_n_sum") == 1
    computed = reply.prompt - grown("vllm:prefix_cache_hits_total")
    # Every token that was run: of the prompt those that were not known, and of the reply.
    assert grown("vllm:iteration_tokens_total_sum") in (computed + 6, computed + 7)


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_a_prompt_is_counted_when_it_is_done(api: str, server: Server) -> None:
    """A long reply is seen while it runs, and not when it ends."""
    before = scraped(server)
    with streaming(server, api, body_of(api, f"{api}: go on.", **LONG)) as reply:
        said = events(reply)  # the stream is closed with it
        next(event for event in said if text_of(api, event))
        during = scraped(server)
        for name in ("vllm:prompt_tokens_total", "vllm:time_to_first_token_seconds_count"):
            assert during[name] > before[name]
        ended = "vllm:e2e_request_latency_seconds_count"
        assert during[ended] == before[ended]  # control: it has not ended
    until(lambda: scraped(server)["vllm:num_requests_running"] == 0, "it has ended")


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_a_client_that_leaves_ends_its_request(api: str, server: Server) -> None:
    """Nothing goes on that nobody reads. B47."""
    with streaming(server, api, body_of(api, **LONG)) as reply:
        said = events(reply)  # the stream is closed with it
        next(said)
        assert server.status()["requests"]
    until(lambda: not server.status()["requests"], "nothing is left of it")
    last = server.status()["recent"][0]
    assert (last["status"], last["completion_tokens"] < LONG["tokens"]) == (499, True)


@pytest.mark.parametrize("api", one_in(2, APIS))
def test_a_request_is_cancelled_by_its_id(api: str, server: Server) -> None:
    """Its stream ends with an error, and others go on."""
    with streaming(server, api, body_of(api, **LONG)) as reply:
        said = events(reply)
        next(said)
        name = reply.headers["x-request-id"]
        assert server.http.delete(f"/v1/requests/{name}").is_success
        rest = [str(event) for event in said]
    assert "cancelled" in rest[-1]
    assert ask(server, api, tokens=2).completion <= 2
