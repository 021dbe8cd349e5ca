"""What an engine says of itself is the same whether it is asked here or over the wire."""

import msgspec
import pytest

from bushel import LLM, SamplingParams
from bushel.core.status import CacheStatus, EngineStatus, as_json
from bushel.engine.drafts.cost_profile import CostProfile
from bushel.engine.drafts.speculation import Speculation
from bushel.engine.status import describe_speculation
from bushel.engine.step_costs import Stopwatch
from tests.depth import often
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
    "speculation",
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


def test_speculation_tells_who_guesses_how_well_and_what_passes_cost() -> None:
    seconds = {(rows, width): 0.01 * rows * width for rows in (1, 2) for width in (1, 2, 4)}
    profile = CostProfile.fitted(seconds, 3)
    on = Speculation((), profile, None)
    told = as_json(describe_speculation(["lookup", "mtp"], 8, 6, on))
    assert told == {
        "drafters": ["lookup", "mtp"],
        "drafted": 8,
        "accepted": 6,
        "acceptance": 0.75,
        "profile": [
            {"rows": 1, "by_width": {"1": 10.0, "2": 20.0, "4": 40.0}},
            {"rows": 2, "by_width": {"1": 20.0, "2": 40.0, "4": 80.0}},
        ],
    }
    assert describe_speculation(["lookup"], 0, 0, on).acceptance == 0.0
    later = Speculation((), profile.with_long_context({1: 0.005, 2: 0.01, 4: 0.04}, 2000), None)
    told = as_json(describe_speculation(["lookup"], 0, 0, later))
    assert told["ms_per_1000_context_tokens"] == {"1": 2.5, "2": 5.0, "4": 20.0}
    off = as_json(describe_speculation([], 0, 0, Speculation()))
    assert (off["drafters"], off["why_off"]) == ([], "it is switched off")
    assert "why_off" not in told


COPY = "one two three four five six seven eight nine ten eleven twelve. "


@pytest.mark.parametrize("who", often(["auto", "lookup", "off"], "auto"))
def test_an_engine_tells_what_it_has_guessed(who: str) -> None:
    with LLM("bushel:tiny", speculate=who) as llm:
        [output] = llm.generate(COPY * 4, SamplingParams(max_tokens=40, ignore_eos=True))
        told = llm.status()["speculation"]
    usage = output.usage
    assert (told["drafted"], told["accepted"]) == (usage.drafted_tokens, usage.accepted_tokens)
    assert 0 <= usage.accepted_tokens <= min(usage.drafted_tokens, usage.completion_tokens)
    assert (usage.drafted_tokens > 0) == (who != "off")
    assert ("lookup" in told["drafters"]) == (who != "off")
    assert (told.get("why_off") == "it is switched off") == (who == "off")


@pytest.mark.parametrize("jump", [0.0, 5.0])
def test_a_step_that_streams_have_felt_is_told(
    caplog: pytest.LogCaptureFixture, jump: float
) -> None:
    """Longer than the gap that they were promised, and than was foreseen."""
    with LLM(str(checkpoint_dir("llama"))) as llm:
        engine, now = llm._engine, 0.0
        assert engine is not None
        handle = llm.submit(prompt(1, 8), SamplingParams(max_tokens=12, ignore_eos=True))

        def clock() -> float:
            nonlocal now
            now += jump if len(handle.output.token_ids) == 6 else 0.001
            return now

        engine._times.clock = clock
        with caplog.at_level("INFO", "bushel.engine.step_times"):
            while not handle.done:
                llm.step()
    told = [record.message for record in caplog.records if "a step took" in record.message]
    assert bool(told) == (jump > 0)
    assert all("1 rows, prompts of [] tokens" in line for line in told)


def test_what_was_launched_for_a_request_that_is_given_up_is_not_waited_for() -> None:
    """The next one may come after minutes, which no step has taken."""
    with LLM(str(checkpoint_dir("llama"))) as llm:
        engine = llm._engine
        assert engine is not None
        engine._times.stopwatch = Stopwatch(behind=True)
        handle = llm.submit(prompt(1, 8), SamplingParams(max_tokens=40, ignore_eos=True))
        while len(handle.output.token_ids) < 4:
            llm.step()
        assert engine._times.stopwatch._launched
        handle.abort()
        assert engine.idle
        assert not engine._times.stopwatch._launched


def test_what_the_last_prompt_launched_is_not_waited_for() -> None:
    """Of a text whose embedding is asked for, nothing else follows."""
    with LLM(str(checkpoint_dir("llama"))) as llm:
        engine = llm._own_engine()
        engine._times.stopwatch = Stopwatch(behind=True)
        llm.embed(["a bushel of grain"])
        assert engine.idle
        assert not engine._times.stopwatch._launched
