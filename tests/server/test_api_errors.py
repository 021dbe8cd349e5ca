"""One way to refuse a field, wherever it is checked, and what else every API shares."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, ValidationError

from bushel.core import ContextLengthError
from bushel.core.wire import Refused
from bushel.server.anthropic.errors import error_object
from bushel.server.api.errors import InvalidField, first_invalid, unsupported
from bushel.server.api.opaque_thoughts import seal, unseal
from bushel.server.errors import ApiError


def _even(value: int) -> int:
    if value % 2:
        raise InvalidField("[0].x", "must be even")
    return value


def _never(value: int) -> int:
    if value:
        raise unsupported("", "is not supported by this server")
    return value


class Numbers(BaseModel):
    first: Annotated[int, AfterValidator(_even)] = 0
    second: Annotated[int, AfterValidator(_never)] = 0


def told(**values: Any) -> tuple[str, str | None, str | None]:
    with pytest.raises(ValidationError) as caught:
        Numbers.model_validate(values)
    errors = [{**it, "loc": ("body", *it["loc"])} for it in caught.value.errors()]
    error = first_invalid(errors)
    assert error.status == 400
    return error.message, error.code, error.param


def test_a_rule_is_told_with_the_whole_place_it_is_broken_at() -> None:
    assert told(first=1) == ("first[0].x must be even.", "invalid_value", "first[0].x")


def test_a_field_that_is_not_supported_has_a_code_of_its_own() -> None:
    message = "second is not supported by this server."
    assert told(second=1) == (message, "unsupported_field", "second")


def test_the_first_of_several_errors_is_told() -> None:
    assert told(first=1, second=1) == told(first=1)


def test_rules_of_pydantics_are_told_in_the_same_form() -> None:
    message, code, param = told(first="x")
    assert message.startswith("first should be a valid integer")
    assert (code, param) == ("invalid_value", "first")


def test_a_place_is_not_told_at_any_length() -> None:
    error = first_invalid([{"loc": ("body", "x" * 1000), "type": "missing", "msg": ""}])
    assert error.message == f"{'x' * 256} is missing."


def test_outside_of_a_validator_it_is_an_error_by_itself() -> None:
    error: ApiError = InvalidField("input[0]", "must be an object")
    assert (error.status, error.code, error.param) == (400, "invalid_value", "input[0]")
    assert str(error) == "input[0] must be an object."
    assert str(InvalidField("", "is no object")) == "The body is no object."


# -- numbers travel beside the words -----------------------------------------------------------


@pytest.mark.parametrize("at_least", [True, False])
def test_numbers_of_an_error_arrive_from_another_process(at_least: bool) -> None:
    error = ContextLengthError(5000, 4096, at_least=at_least)
    refused = Refused.because("r", error)
    arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(refused), type=Refused)
    told = ApiError.refused(arrived)
    assert told.details == ApiError.of(error).details == {"prompt_tokens": 5000, "context": 4096}
    # Whatever the words are.
    told.message = "Entirely other words."
    shown = error_object(told)["error"]
    assert shown["message"] == "prompt is too long: 5000 tokens > 4095 maximum"
    assert "details" not in shown


def test_control_without_numbers_the_words_stay() -> None:
    error = ApiError(400, "The prompt has 7 tokens.", code="context_length_exceeded")
    assert error_object(error)["error"]["message"] == "The prompt has 7 tokens."


# -- thoughts that clients keep ----------------------------------------------------------------


@pytest.mark.parametrize("thoughts", ["", "Hm…", "a\n" * 1000, "\U0001f9e0."])
def test_thoughts_come_back_as_they_were(thoughts: str) -> None:
    sealed = seal(thoughts)
    assert unseal(sealed) == thoughts
    assert thoughts == "" or thoughts not in sealed


@pytest.mark.parametrize("sealed", ["bushel.SG3igKY=", "bushel-1.SG3igKY="])
def test_thoughts_that_earlier_versions_sealed_are_still_read(sealed: str) -> None:
    assert unseal(sealed) == "Hm…"


@pytest.mark.parametrize(
    "other",
    [None, 3, "", "SG3igKY=", "YnVzaGVs", "bushel", "bushel-2.SG3igKY=", "bushel.S", "bushel./w=="],
)
def test_what_is_not_ours_or_damaged_says_nothing(other: Any) -> None:
    assert unseal(other) is None
