"""What the server writes: one line a request, and none that a client made up."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from bushel.core.options import EngineOptions
from bushel.core.status import EngineStatus, RequestStatus
from bushel.core.wire import Started
from bushel.server.observability import logs
from bushel.server.observability.metrics import Metrics
from bushel.server.observability.request_record import Record
from bushel.server.options import ServerOptions
from bushel.server.service import requests
from bushel.server.service.load_gate import LoadGate
from bushel.server.service.requests import Requests

FORGED = "x\n2026-01-01 00:00:00 INFO    forged"
NASTY = [FORGED, "x\r\nforged", "x\x1b[2K\x1b[1Aforged", "x\u2028forged", "x\x85forged", "x\x00"]


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging.root, "handlers", [])
    names = ("", "bushel", "bushel.prompt", "uvicorn.access")
    before = [(it, it.level, it.disabled) for it in map(logging.getLogger, names)]
    yield
    logs.finish()
    logging.captureWarnings(False)
    for logger, level, disabled in before:
        logger.setLevel(level)
        logger.disabled = disabled


def options(**more: Any) -> ServerOptions:
    return ServerOptions(EngineOptions("org/model"), **more)


class Stream(io.StringIO):
    """What is logged, once it is written."""

    def getvalue(self) -> str:
        logs.drain()
        return super().getvalue()


def written(**more: Any) -> io.StringIO:
    stream = Stream()
    logs.setup(options(**more), stream)
    return stream


def record(**more: Any) -> Record:
    """A request of 120 tokens that took 2.5 s."""
    said: dict[str, Any] = {
        "id": "chatcmpl-1",
        "api": "chat",
        "model": "org/model",
        "stream": True,
        "choices": 1,
        "arrived": 100.0,
        "phase": "done",
        "prompt_tokens": 120,
        "cached_tokens": 96,
        "hit": "prefix",
        "why": "what is kept goes on otherwise, or ends, at token 96",
        "completion_tokens": 41,
        "accepted": 100.1,
        "started": 100.2,
        "first_token": 100.5,
        "last_token": 102.5,
        "finished": 102.5,
        "finish_reasons": ["stop"],
    }
    return Record(**{**said, **more})


def only_line(stream: io.StringIO) -> str:
    text = stream.getvalue()
    assert text.endswith("\n")
    assert text.splitlines() == [text[:-1]]  # by every kind of line end
    return text[:-1]


# -- requests --------------------------------------------------------------------------------


def test_a_finished_request_is_one_readable_line() -> None:
    stream = written()
    logs.finished(record())
    said = only_line(stream)
    assert " INFO " in said
    assert said.endswith(
        "chatcmpl-1 chat org/model: 120 tokens in (96 cached, prefix), 41 out, first after 0.50 s, "
        "20.0 tokens/s, 2.50 s in all, stop"
    )


def test_a_request_that_begins_says_what_it_brings() -> None:
    stream = written()
    logs.started(record())
    assert only_line(stream).endswith(
        "chatcmpl-1 chat org/model: begins, 120 tokens in (96 cached, prefix)"
    )


def row(id: str, prefilled: int) -> RequestStatus:
    return RequestStatus(id, 0, "prefill", 32_000, prefilled, 0, 0, "", "")


def test_a_long_prompt_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few seconds, once for all of its choices, and not when it has run. B69."""
    stream, now = written(), [100.0]
    monkeypatch.setattr(requests, "awake", lambda: now[0])
    them = Requests(options(), Metrics("org/model"), lambda: None, LoadGate())
    one = record(phase="preparing", prompt_tokens=32_000, finished=None, first_token=None)
    them._records[one.id] = one
    them.begin(one, Started(one.id), now[0])
    for second in range(1, 13):
        now[0] = 100.0 + second
        them.tell_prefills([row(one.id, 1000 * second)] * 2 + [row("another", 1)])
    one.phase = "decode"
    now[0] = 130.0
    them.tell_prefills([row(one.id, 32_000)])
    told = [line.partition("model: ")[2] for line in stream.getvalue().splitlines()]
    assert told == [
        "begins, 32000 tokens in",
        "5000 of 32000 tokens in, after 5 s",
        "10000 of 32000 tokens in, after 10 s",
    ]


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({"finish_reasons": ["stop", "length", "stop"], "choices": 3}, "2xstop length"),
        ({"status": 499, "finish_reasons": ["abort"]}, "the client went away"),
        ({"status": 400, "error": "context_length_exceeded"}, "error 400 context_length_exceeded"),
        ({"restarts": 2}, "survived 2 restarts, stop"),
    ],
)
def test_every_ending_is_told(more: dict[str, Any], end: str) -> None:
    stream = written()
    logs.finished(record(**more))
    assert only_line(stream).endswith(f", {end}")


def test_a_request_that_was_refused_has_no_times_to_tell() -> None:
    stream = written()
    none: dict[str, Any] = {"first_token": None, "last_token": None, "finish_reasons": []}
    refused = record(**none, status=404, error="model_not_found", completion_tokens=0)
    logs.finished(refused)
    said = only_line(stream)
    assert "first" not in said
    assert "tokens/s" not in said
    assert said.endswith("error 404 model_not_found")


def test_a_fault_of_the_server_is_a_warning() -> None:
    stream = written(log_level="warning")
    logs.finished(record())
    assert not stream.getvalue()
    logs.finished(record(status=503, error="engine_restarted", finish_reasons=[]))
    assert " WARNING " in only_line(stream)


def test_json_has_every_number_of_the_request() -> None:
    stream = written(log_json=True)
    logs.finished(record())
    said = json.loads(only_line(stream))
    assert said["level"] == "info"
    expected = {
        "id": "chatcmpl-1",
        "model": "org/model",
        "prompt_tokens": 120,
        "cached_tokens": 96,
        "hit": "prefix",
        "why": "what is kept goes on otherwise, or ends, at token 96",
        "completion_tokens": 41,
        "first_token_seconds": 0.5,
        "tokens_per_second": 20.0,
        "total_seconds": 2.5,
        "finish_reasons": ["stop"],
        "error": None,
    }
    assert {key: said[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("reason", "why", "said"),
    [
        ("unknown", "nothing begins like it", "120 tokens in (none cached: nothing begins like "),
        ("off", "prefix reuse is off", "120 tokens in, 41 out"),  # the start-up lines tell why
        ("", "", "120 tokens in, 41 out"),  # it never came to that
    ],
)
def test_a_request_that_reused_nothing_says_why(reason: str, why: str, said: str) -> None:
    stream = written()
    logs.finished(record(cached_tokens=0, hit="", why=why, reason=reason))
    assert said in only_line(stream)


# -- nobody writes lines of their own --------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("field", ["id", "model", "error"])
def test_a_request_cannot_forge_a_line(field: str, text: str, as_json: bool) -> None:
    stream = written(log_json=as_json)
    logs.finished(record(**{field: text}))
    said = only_line(stream)
    assert said.isprintable()
    if as_json and field == "id":
        assert json.loads(said)["id"] == text


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("text", NASTY)
def test_nor_can_what_others_log_of_it(text: str, as_json: bool) -> None:
    stream = written(log_json=as_json)
    logging.getLogger("uvicorn.error").error("bad request: %s", text)
    assert only_line(stream).isprintable()


def test_an_id_that_looks_like_fields_is_quoted() -> None:
    stream = written()
    logs.finished(record(id="a chat org/model: 0 tokens in"))
    assert '"a chat org/model: 0 tokens in" chat org/model: 120 tokens in' in only_line(stream)


def test_a_traceback_stands_indented_behind_its_line() -> None:
    stream = written()
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("bushel").exception("it broke")
    head, *behind = stream.getvalue().splitlines()
    assert head.endswith("it broke")
    assert any("ValueError" in line for line in behind)
    assert all(line.startswith("    ") for line in behind)


def test_control_a_plain_formatter_would_let_lines_through() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.root.addHandler(handler)
    logging.getLogger("elsewhere").error("bad request: %s", FORGED)
    assert len(stream.getvalue().splitlines()) == 2


# -- prompts ---------------------------------------------------------------------------------

ASKED = {"messages": [{"role": "user", "content": "my secret"}]}


@pytest.mark.parametrize("level", logs.LEVELS)
def test_prompts_are_not_logged_unless_asked(level: str) -> None:
    stream = written(log_level=level)
    logs.prompt("chatcmpl-1", ASKED)
    logs.finished(record())
    assert "secret" not in stream.getvalue()


@pytest.mark.parametrize("level", logs.LEVELS)
@pytest.mark.parametrize("as_json", [False, True])
def test_prompts_are_logged_when_asked(level: str, as_json: bool) -> None:
    stream = written(log_level=level, log_prompts=True, log_json=as_json)
    logs.prompt("chatcmpl-1", ASKED)
    said = only_line(stream)
    assert "chatcmpl-1" in said
    assert "my secret" in said


@pytest.mark.parametrize("text", NASTY)
def test_a_prompt_cannot_forge_a_line(text: str) -> None:
    stream = written(log_prompts=True)
    logs.prompt(text, {"messages": [{"role": "user", "content": text}], text: text})
    assert only_line(stream).isprintable()


def test_a_picture_does_not_drown_the_words_behind_it() -> None:
    stream = written(log_prompts=True)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}
    asked = {"content": [picture, {"type": "text", "text": "what is it?"}]}
    logs.prompt("chatcmpl-1", {"messages": [asked] * 100})
    said = only_line(stream)
    assert "what is it?" in said
    assert len(said) < 5000


# -- everything else -------------------------------------------------------------------------


def test_others_are_quiet_until_something_is_wrong() -> None:
    stream = written(log_level="debug")
    logging.getLogger("httpx").info("GET http://somewhere")
    logging.getLogger("uvicorn.access").warning("127.0.0.1 GET /v1/models?key=secret")
    logging.getLogger("uvicorn.error").info("Started server process")
    assert not stream.getvalue()
    logging.getLogger("httpx").warning("retrying")
    assert only_line(stream).endswith("WARNING httpx: retrying")


def test_every_line_is_json_when_asked() -> None:
    stream = written(log_json=True, log_prompts=True)
    logs.prompt("chatcmpl-1", ASKED)
    logs.finished(record())
    logs.announce(["Listening"])
    warnings.warn("deprecated", stacklevel=1)
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("it broke")
    said = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [it["level"] for it in said] == ["debug", "info", "info", "warning", "error"]
    assert "deprecated" in said[3]["message"]
    assert "ValueError: no" in said[4]["traceback"][-1]


def test_setting_up_twice_does_not_write_twice() -> None:
    stream = Stream()
    for _ in range(2):
        logs.setup(options(), stream)
    logs.finished(record())
    only_line(stream)


def test_what_is_logged_after_the_end_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    stream = written(log_json=True)
    logs.finish()
    logs.log.warning("a child's last words")
    assert not stream.getvalue()
    assert not capsys.readouterr().err


# -- start-up --------------------------------------------------------------------------------

IDLE: dict[str, Any] = {
    "running": 0,
    "lane": "batch",
    "lane_reason": None,
    "memory": {
        "limit_bytes": 20_000_000_000,
        "weights_bytes": 8_000_000_000,
        "promised_bytes": 8_500_000_000,
    },
    "cache": {"on": True, "limit_bytes": 5_750_000_000},
    "speculation": {"drafters": ["lookup", "mtp"]},
}


def banner(options: ServerOptions, names: list[str], status: Any, **more: Any) -> list[str]:
    return logs.banner(options, names, msgspec.convert(status, EngineStatus), **more)


def test_the_banner_tells_where_what_and_how_much() -> None:
    lines = banner(options(), ["org/model"], IDLE, context=4096)
    assert lines == [
        "Model: org/model, context 4096 tokens",
        "Lane: batch, up to 32 replies together, prompts in chunks of up to 16384 tokens",
        "Memory: 20.00 GB may be used: 8.00 GB weights, 0.50 GB to run a prompt, "
        "11.50 GB for requests",
        "Cache: up to 5.75 GB of that for what prompts have in common",
        "Drafts: lookup, mtp, as many tokens ahead as pay",
        "Listening on http://127.0.0.1:8000 (browsers, Anthropic clients), "
        "http://127.0.0.1:8000/v1 (OpenAI clients)",
    ]


def test_the_banner_tells_names_port_and_that_a_key_is_needed() -> None:
    given = options(host="::1", port=0, api_keys=("sesame",))
    lines = banner(given, ["a", "b"], IDLE, port=8123)
    assert lines[0] == "Model: a, from org/model, also as b"
    assert "http://[::1]:8123/v1 (OpenAI clients); an API key is needed" in lines[-1]
    assert "sesame" not in "".join(lines)


def test_the_banner_tells_why_rows_run_alone() -> None:
    status = {**IDLE, "lane": "single", "lane_reason": "its rows mix"}
    lines = banner(options(), ["a"], status)
    assert lines[1] == "Lane: single, one reply at a time, because its rows mix"


def test_the_banner_tells_why_nothing_is_guessed() -> None:
    status = {**IDLE, "speculation": {"why_off": "it is switched off"}}
    lines = banner(options(), ["a"], status)
    assert "Drafts: off, because it is switched off" in lines


def test_the_banner_tells_where_files_are_kept() -> None:
    engine = EngineOptions("m", cache_kv_bits=8, cache_dir="/ssd/cache", cache_disk=20 * 10**9)
    lines = banner(ServerOptions(engine), ["a"], IDLE)
    assert lines[3].endswith(" in common, in 8 bits, up to 20.00 GB in /ssd/cache")
    cache = {**IDLE["cache"], "disk": {"off": "another process uses its folder"}}
    lines = banner(ServerOptions(engine), ["a"], {**IDLE, "cache": cache})
    assert lines[3].endswith("/ssd/cache (off: another process uses its folder)")


def test_the_banner_tells_why_nothing_is_reused() -> None:
    status = {**IDLE, "cache": {"on": False, "why": "state of X cannot be kept"}}
    assert banner(options(), ["a"], status)[3] == ("Cache: off, because state of X cannot be kept")


def test_the_banner_is_logged_like_the_rest() -> None:
    """So that a start has its lines. B69."""
    stream = written()
    logs.announce(banner(options(), ["a"], {"lane": "batch"}))
    assert len(stream.getvalue().splitlines()) == 6
    assert "Memory: no limit" in stream.getvalue()
