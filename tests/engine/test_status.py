"""What an engine says of itself is the same whether it is asked here or over the wire."""

import msgspec
import pytest

from bushel import LLM, SamplingParams
from bushel.core.status import CacheStatus, EngineStatus, as_json
from tests.families import checkpoint_dir
from tests.llm.request_builders import prompt

KEYS = [
    "running",
    "waiting",
    "deferred",
    "lane",
    "lane_reason",
    "attention",
    "max_decode_batch",
    "preemptions",
    "memory",
    "requests",
    "cache",
]
MEMORY = ["active_bytes", "peak_bytes", "cache_bytes", "state_bytes", "state_buffers"]
PROMISED = [
    *("limit_bytes", "weights_bytes", "promised_bytes", "promised_buffers"),
    "claimed_bytes",
]
CACHE = [
    "on",
    "limit_bytes",
    "bytes",
    "buffers",
    "nodes",
    "tokens",
    "edge_bytes",
    "snapshots",
    "snapshot_bytes",
    "features",
    "feature_bytes",
    "evicted",
    "hits",
    "asked_tokens",
    "reused_tokens",
]
REQUEST = [
    "id",
    "choice",
    "phase",
    "prompt_tokens",
    "prefilled_tokens",
    "completion_tokens",
    "cached_tokens",
    "hit",
    "why",
]


@pytest.mark.parametrize("on", [True, False])
def test_what_is_told_is_named_as_ever_and_survives_the_wire(on: bool) -> None:
    with LLM(str(checkpoint_dir("llama")), prefix_cache=on, prefill_chunk=8) as llm:
        handle = llm.submit(prompt(20), SamplingParams(max_tokens=9, ignore_eos=True))
        while not handle.output.token_ids:
            llm.step()
        assert llm._engine is not None
        status, told = llm._engine.status(), llm.status()
        assert list(told) == KEYS
        assert list(told["memory"]) == MEMORY + PROMISED
        assert list(told["cache"]) == (CACHE if on else ["on", "why"])
        assert isinstance(told["requests"], list)
        assert [list(row) for row in told["requests"]] == [REQUEST]
        assert told["requests"][0]["prefilled_tokens"] == 20
        assert (told["running"], told["waiting"], told["cache"]["on"]) == (1, 0, on)
        sent = msgspec.msgpack.encode(status)
        assert msgspec.msgpack.decode(sent, type=EngineStatus) == status


def test_nothing_known_is_an_empty_object_and_what_nobody_knows_is_refused() -> None:
    assert as_json(None) == {}
    assert as_json(CacheStatus()) == {"on": False}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"on": True, "something": 1}, CacheStatus)
