"""The reference has every flag, endpoint, field and metric, and is as new as the code."""

import argparse

import pytest
from fastapi import APIRouter

from bushel.server import app
from bushel.server.command import flags
from bushel.server.command.settings import variable
from tools import reference


def test_the_reference_is_that_of_the_code() -> None:
    """Otherwise: `python -m tools.reference`."""
    assert reference.PAGE.read_text() == reference.page()


def test_every_flag_of_the_help_is_there_with_its_variable() -> None:
    text = reference.PAGE.read_text()
    shown = [
        action.option_strings[0]
        for action in reference.serve_parser()._actions
        if action.option_strings and action.help != argparse.SUPPRESS
    ]
    assert len(shown) > 50
    for flag in shown:
        if flag not in ("-h", "--config"):
            assert f"`{flag}" in text
            assert f"`{variable(flag.lstrip('-'))}`" in text


def test_what_every_field_does_is_there() -> None:
    """What it says of the default stands in a column of its own."""
    text = reference.PAGE.read_text()
    told = [
        field["description"].partition(" (default: ")[0]
        for schema in reference.openapi_document()["components"]["schemas"].values()
        for field in schema["properties"].values()
    ]
    assert len(told) > 350
    assert [one for one in told if one not in text] == []
    assert (
        "| `top_k` | integer -1 to 2^31 | the server's, the model's, or 0 | honoured | Draw" in text
    )


@pytest.mark.long
def test_control_a_flag_or_an_endpoint_that_is_missing_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log_flags, routes = flags._log_flags, app.admin_routes

    def more_flags(group: argparse._ArgumentGroup) -> None:
        log_flags(group)
        group.add_argument("--log-colour", dest="colour", help="how it shines")

    def more_routes(services: object) -> APIRouter:
        made = routes(services)  # type: ignore[arg-type]
        made.add_api_route("/v1/new", lambda: None, summary="Something new")
        return made

    monkeypatch.setattr(flags, "_log_flags", more_flags)
    monkeypatch.setattr(app, "admin_routes", more_routes)
    page = reference.page()
    assert "BUSHEL_LOG_COLOUR" in page
    assert "### GET /v1/new" in page
