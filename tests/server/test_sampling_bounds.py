"""Every bound of a sampling parameter stands in one table; engine, APIs and flags obey it."""

from __future__ import annotations

import argparse
import runpy
from dataclasses import fields, replace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bushel.core import GenerationDefaults, RequestError, SamplingParams
from bushel.core.params import BOUNDS, Bound, choices, resolve
from bushel.server.anthropic.schema import MessagesRequest
from bushel.server.api import fields as api_fields
from bushel.server.command import flags
from bushel.server.openai.chat.schema import ChatRequest
from bushel.server.openai.completions.schema import CompletionRequest
from bushel.server.responses.schema import ResponsesRequest
from tests.depth import one_in

# The kind of field that an API has for each.
KINDS = {
    "max_tokens": "Tokens",
    "min_tokens": "TokensOrNone",
    "temperature": "Temperature",
    "top_p": "TopP",
    "top_k": "TopK",
    "min_p": "MinP",
    "typical_p": "TypicalP",
    "top_n_sigma": "TopNSigma",
    "xtc_probability": "XtcProbability",
    "xtc_threshold": "XtcThreshold",
    "dry_multiplier": "DryMultiplier",
    "dry_base": "DryBase",
    "dry_allowed_length": "DryAllowedLength",
    "dry_penalty_last_n": "DryLastN",
    "repetition_penalty": "RepetitionPenalty",
    "repeat_last_n": "RepeatLastN",
    "presence_penalty": "PresencePenalty",
    "frequency_penalty": "FrequencyPenalty",
    "logit_bias": "LogitBias",
    "seed": "Seed",
    "n": "Choices",
}
FLAGS = [name for name in BOUNDS if name in {field.name for field in fields(GenerationDefaults)}]
# Bounds that an API has for itself: no token at all may be asked for, to have a prompt kept or
# echoed, and Anthropic's temperatures end earlier.
OWN: dict[tuple[type[Any], str], Bound] = {
    (CompletionRequest, "max_tokens"): replace(BOUNDS["max_tokens"], low=-1),  # without a limit
    (MessagesRequest, "max_tokens"): replace(BOUNDS["max_tokens"], low=0),
    (MessagesRequest, "temperature"): replace(BOUNDS["temperature"], high=2),
}
LEAST: dict[type[Any], dict[str, Any]] = {
    ChatRequest: {"messages": [{"role": "user", "content": "Hi"}]},
    CompletionRequest: {"prompt": "Hi"},
    MessagesRequest: {"messages": []},
    ResponsesRequest: {},
}
FIELDS = [
    (request, name)
    for request in LEAST
    for name in BOUNDS
    if name in request.model_fields and (request, name) != (ResponsesRequest, "n")  # unsupported
]


def outside(bound: Bound) -> tuple[float, float]:
    step = 1 if bound.whole else (bound.high - bound.low) / 1000
    return bound.low - step, bound.high + step


def said(name: str, value: float) -> Any:
    return {"5": value} if name == "logit_bias" else value


def engine_takes(name: str, value: float) -> bool:
    bias = {5: value} if name == "logit_bias" else value
    params = SamplingParams(**{name: bias})  # type: ignore[arg-type]
    try:
        resolve(params, GenerationDefaults(), vocab=10, end_ids=frozenset())
        choices(params)
    except RequestError:
        return False
    return True


def field_takes(kind: Any, name: str, value: float) -> bool:
    try:
        TypeAdapter(kind).validate_python(said(name, value))
    except ValidationError:
        return False
    return True


def flag_takes(name: str, value: float) -> bool:
    parser = argparse.ArgumentParser(exit_on_error=False)
    flags._sampling_flags(parser.add_argument_group("sampling"))
    try:
        flag = "--seed" if name == "seed" else f"--default-{name.replace('_', '-')}"
        parser.parse_args([f"{flag}={value!r}"])
    except argparse.ArgumentError:
        return False
    return True


def taken_everywhere(name: str, value: float) -> set[bool]:
    """What engine, field and flag say; the fields are made anew, from the table as it is now."""
    kind = runpy.run_path(str(api_fields.__file__))[KINDS[name]]
    answers = {engine_takes(name, value), field_takes(kind, name, value)}
    return answers | {flag_takes(name, value)} if name in FLAGS else answers


def test_every_number_that_a_caller_may_set_has_its_bound() -> None:
    numbers = {
        field.name
        for field in fields(SamplingParams)
        if "int" in field.type or "float" in field.type
    }
    # Those bounds are the vocabulary's.
    ids = {"stop_token_ids", "allowed_token_ids"}
    assert numbers - ids - {"logprobs", "prompt_logprobs"} == set(BOUNDS) == set(KINDS)


@pytest.mark.parametrize("name", one_in(3, BOUNDS))
def test_engine_fields_and_flags_have_the_same_bounds(name: str) -> None:
    bound = BOUNDS[name]
    assert taken_everywhere(name, bound.low) == taken_everywhere(name, bound.high) == {True}
    for value in outside(bound):
        assert taken_everywhere(name, value) == {False}


@pytest.mark.parametrize("name", BOUNDS)
def test_control_a_bound_that_is_changed_in_the_table_changes_everywhere(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = BOUNDS[name]
    # Above 256, which is the engine's own choice of max_tokens.
    high = min(300, bound.high // 2) if bound.whole else (bound.low + bound.high) / 2
    beyond = high + (1 if bound.whole else (bound.high - high) / 2)
    assert taken_everywhere(name, beyond) == {True}
    monkeypatch.setitem(BOUNDS, name, replace(bound, high=high))
    assert taken_everywhere(name, high) == {True}
    assert taken_everywhere(name, beyond) == {False}


@pytest.mark.parametrize(("request_type", "name"), FIELDS)
def test_every_request_obeys_the_table_or_a_bound_of_its_own(
    request_type: type[Any], name: str
) -> None:
    bound = OWN.get((request_type, name), BOUNDS[name])
    least = LEAST[request_type]
    for value in (bound.low, bound.high):
        request_type.model_validate({**least, name: said(name, value)})
    for value in outside(bound):
        with pytest.raises(ValidationError) as caught:
            request_type.model_validate({**least, name: said(name, value)})
        assert caught.value.errors()[0]["loc"][0] == name
