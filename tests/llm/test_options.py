"""Engine options are listed once: `LLM` takes those of `EngineOptions` as its arguments."""

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from bushel import LLM, BushelError, SamplingParams
from bushel.chat.script_request import CHAT_NAMES
from bushel.core.options import EngineOptions
from bushel.core.params import GenerationDefaults, resolve
from bushel.core.reuse import MISSES
from bushel.engine.plan import Policy
from tests.families import checkpoint_dir


def test_the_arguments_are_the_options() -> None:
    shown = list(inspect.signature(LLM).parameters.values())
    assert shown == list(inspect.signature(EngineOptions).parameters.values())
    by_place = [it.name for it in shown if it.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert by_place == [
        "model",
        "dtype",
        "max_batch",
        "prefill_chunk",
        "prefix_cache",
        "trust_remote_code",
    ]


def test_every_option_is_explained() -> None:
    words = set(re.findall(r"\w+", LLM.__doc__ or ""))
    assert {field.name for field in fields(EngineOptions)} - words == set()


def test_every_field_of_a_conversation_is_explained() -> None:
    words = set(re.findall(r"\w+", LLM.chat.__doc__ or ""))
    assert CHAT_NAMES - words == set()


def test_options_reach_the_engine_by_place_and_by_name() -> None:
    path: Path = checkpoint_dir("llama")
    with LLM(path, "float32", 3, prefill_chunk=17, prefix_cache=False, token_gap=0.25) as llm:  # type: ignore[arg-type]
        assert llm._engine is not None
        policy = llm._engine.policy
        assert (policy.max_batch, policy.prefill_chunk, policy.token_gap) == (3, 17, 0.25)
        assert llm.cache_stats()["on"] is False


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="no_such_option"):
        LLM("bushel:tiny", no_such_option=1)  # type: ignore[call-arg]
    with pytest.raises(BushelError, match="max_batch must be one or more"):
        LLM("bushel:tiny", max_batch=0)


def test_the_schedulers_own_defaults_are_those_of_the_options() -> None:
    """It stands alone, without the rest of Bushel, so it has to list them."""
    options = {field.name: field.default for field in fields(EngineOptions)}
    shared = {field.name: field.default for field in fields(Policy) if field.name in options}
    assert shared == {name: options[name] for name in shared}
    assert shared.keys() >= {"max_batch", "prefill_chunk", "token_gap", "start_wait", "order"}


def test_what_a_request_leaves_open_comes_from_the_model_and_then_from_the_library() -> None:
    model = GenerationDefaults(temperature=0.5, top_k=40)
    asked = SamplingParams(top_k=7)
    found = resolve(asked, model, vocab=100, end_ids=frozenset())
    assert (found.temperature, found.top_k, found.top_p, found.max_tokens) == (0.5, 7, 1.0, 256)
    longer = resolve(asked, model, vocab=100, end_ids=frozenset(), max_tokens=900)
    assert longer.max_tokens == 900
    assert GenerationDefaults(top_k=1).over(model) == GenerationDefaults(temperature=0.5, top_k=1)


def test_no_reason_of_a_miss_is_written_twice() -> None:
    root = Path(inspect.getfile(EngineOptions)).parents[1]
    sources = {path.name: path.read_text() for path in root.rglob("*.py")}
    lists = [name for name, text in sources.items() if all(f'"{miss}",' in text for miss in MISSES)]
    assert lists == ["reuse.py"]
