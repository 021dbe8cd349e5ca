"""What clients and operators see of tokens that were guessed ahead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.depth import often, one_in
from tests.server.compare_with_llm import user
from tests.server.server_process import FEW, PATIENCE, Server, serving
from tests.server.test_metrics import samples

CHAT, DRAFTS = "/v1/chat/completions", "vllm:spec_decode_num"
# Loops, which are easy to guess; each API by its own names.
TEXT = "one two three four five six seven eight nine ten. " * 3
LONG = {"max_tokens": 40, "temperature": 0}
# Milliseconds by width that other servers of the tests are told, instead of measuring them.
CHEAP = {"1": 1000, "2": 1200, "4": 1600, "8": 2400}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": user(TEXT), "ignore_eos": True, **LONG},
    "/v1/completions": {"prompt": TEXT, "ignore_eos": True, **LONG},
    "/v1/responses": {"input": TEXT, "ignore_eos": True, "max_output_tokens": 40, "temperature": 0},
    "/v1/messages": {"messages": user(TEXT), **LONG},
}


@pytest.fixture
def server(tiny: Server) -> Server:
    return tiny


def used(server: Server, path: str, **fields: Any) -> tuple[int, int]:
    """Accepted and rejected tokens of one reply."""
    reply = server.http.post(path, json={**BODIES[path], **fields}).raise_for_status().json()
    usage = reply["usage"]
    details = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or usage
    return details["accepted_prediction_tokens"], details["rejected_prediction_tokens"]


def counted(server: Server) -> tuple[int, int, int]:
    """Guesses, their tokens, and those that were said, as /metrics has them."""
    found = samples(server.http.get("/metrics").text)
    names = ("drafts", "draft_tokens", "accepted_tokens")
    drafts, drafted, accepted = (int(found[f"{DRAFTS}_{name}_total"]) for name in names)
    by_place = f"{DRAFTS}_accepted_tokens_per_pos_total"
    assert sum(value for name, value in found.items() if by_place in name) == accepted
    return drafts, drafted, accepted


@pytest.mark.parametrize("path", one_in(2, BODIES))
def test_usage_metrics_and_status_tell_the_same(path: str, server: Server) -> None:
    """Of guesses and what came of them, whichever API asks. B84."""
    before, told = counted(server), server.status()["engine"]["speculation"]
    accepted, rejected = used(server, path)
    after, then = counted(server), server.status()["engine"]["speculation"]
    assert accepted > 0 or path == "/v1/messages"  # where the reply ends by itself
    assert after[1] - before[1] == accepted + rejected
    assert after[2] - before[2] == accepted
    assert after[0] - before[0] <= after[1] - before[1]
    assert then["drafted"] - told["drafted"] == accepted + rejected
    assert then["accepted"] - told["accepted"] == accepted
    assert then["acceptance"] == pytest.approx(then["accepted"] / then["drafted"], abs=1e-3)
    [record, *_] = server.status()["recent"]
    assert (record["drafted_tokens"], record["accepted_tokens"]) == (accepted + rejected, accepted)


@pytest.mark.parametrize("path", often(BODIES, CHAT))
def test_a_request_may_ask_for_no_guesses(path: str, server: Server) -> None:
    """Its reply is the same. B84."""
    assert used(server, path, speculate=False) == (0, 0)
    bodies = [{**BODIES[path], "speculate": wish} for wish in (True, False)]
    replies = [server.http.post(path, json=body).raise_for_status().json() for body in bodies]
    said = [reply.get("choices") or reply.get("content") or _texts(reply) for reply in replies]
    assert said[0] == said[1]


def _texts(response: dict[str, Any]) -> list[str]:
    return [part["text"] for item in response["output"] for part in item.get("content") or ()]


@pytest.mark.parametrize("path", BODIES)
def test_what_is_no_wish_is_refused_by_name(path: str, server: Server) -> None:
    reply = server.http.post(path, json={**BODIES[path], "speculate": "yes"})
    assert reply.status_code == 400
    assert "speculate" in reply.text


def test_a_stream_ends_with_the_same_usage(server: Server) -> None:
    wish = {"stream": True, "stream_options": {"include_usage": True}}
    text = server.http.post(CHAT, json={**BODIES[CHAT], **wish}).raise_for_status().text
    accepted, _ = used(server, CHAT)
    assert f'"accepted_prediction_tokens":{accepted},' in text


def test_llama_cpps_timings_tell_guesses(server: Server) -> None:
    body = {"prompt": TEXT, "n_predict": 40, "temperature": 0, "ignore_eos": True}
    timings = server.http.post("/completion", json=body).raise_for_status().json()["timings"]
    assert 0 < timings["draft_n_accepted"] <= timings["draft_n"]


@pytest.fixture(scope="module")
def lookup_server() -> Iterator[Server]:
    """In which no head guesses the reply anyway."""
    with serving(*FEW, "--speculate", "lookup") as running:
        yield running


def test_a_prediction_is_said_sooner_and_changes_nothing(lookup_server: Server) -> None:
    """The text that a client expects is guessed from. B84."""
    plain = {"messages": user("What is 3 + 4?"), "temperature": 0}

    def asked(**more: Any) -> tuple[str, int, int]:
        reply = lookup_server.http.post(CHAT, json={**plain, **more}).raise_for_status().json()
        usage, [choice] = reply["usage"], reply["choices"]
        accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]
        return choice["message"]["content"], accepted, usage["prompt_tokens"]

    def predicted(content: Any) -> tuple[str, int, int]:
        return asked(prediction={"type": "content", "content": content})

    expected, without, prompt = asked()
    said, held, length = predicted(expected)
    assert (said, length) == (expected, prompt)
    assert held > without
    assert predicted([{"type": "text", "text": expected}]) == (said, held, length)
    assert predicted("Something else entirely.") == (expected, without, prompt)


def test_status_tells_who_guesses_and_what_passes_cost(server: Server) -> None:
    told = server.status()["engine"]["speculation"]
    assert "lookup" in told["drafters"]
    assert [row["rows"] for row in told["profile"]] == [1, 2, 4, 8, 16, 32]
    assert told["profile"][0]["by_width"] == CHEAP
    assert server.logged("Drafts: grammar, lookup")


@pytest.mark.long
def test_a_server_measures_what_passes_cost_on_this_machine() -> None:
    with serving(*FEW, "--max-batch", "4", env={"PYTHONPATH": ""}) as measured:
        told = measured.status()["engine"]["speculation"]
        assert [row["rows"] for row in told["profile"]] == [1, 2, 4]
        for row in told["profile"]:
            costs = [*row["by_width"].values()]
            assert 0 < costs[0] <= costs[-1]
            assert row["by_width"] != CHEAP


@pytest.mark.long
def test_drafts_hold_where_passes_cost_what_they_do_on_this_machine() -> None:
    """With the settings that a server has, and the model that comes with it. B59."""
    with serving(env={"PYTHONPATH": ""}) as measured:
        accepted, _ = used(measured, CHAT)
        assert accepted > 0


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Server]:
    with serving(*FEW, "--speculate", "off") as running:
        yield running


@pytest.mark.long
def test_a_server_without_guesses_says_why(plain_server: Server) -> None:
    told = plain_server.status()["engine"]["speculation"]
    assert (told["drafters"], told["why_off"]) == ([], "it is switched off")
    assert used(plain_server, CHAT) == (0, 0)
    assert counted(plain_server) == (0, 0, 0)
    assert plain_server.logged("Drafts: off, because it is switched off")


def test_without_any_flag_drafts_hold(tiny: Server) -> None:
    before = tiny.status()["engine"]["speculation"]
    accepted, rejected = used(tiny, CHAT)
    after = tiny.status()["engine"]["speculation"]
    assert accepted > 0
    assert after["accepted"] - before["accepted"] == accepted
    assert after["drafted"] - before["drafted"] == accepted + rejected
    assert set(after["drafters"]) == {"grammar", "lookup", "mtp"}


@pytest.mark.long
@pytest.mark.parametrize("more", [{}, {"temperature": 0.8, "seed": 5}], ids=["greedy", "sampled"])
def test_a_server_with_guesses_says_what_one_without_says(
    more: dict[str, Any], tiny: Server, plain_server: Server
) -> None:
    for question in ("What is 3 + 4?", f"Say this again: {TEXT}", "What is the capital of France?"):
        body = {"messages": user(question), **LONG, **more}
        replies = [one.http.post(CHAT, json=body).json() for one in (tiny, plain_server)]
        first, second = (reply["choices"][0]["message"]["content"] for reply in replies)
        assert first == second


@pytest.mark.parametrize("word", often(["ngram", "on", "5"], "on"))
def test_a_word_that_names_nobody_is_one_line_and_exit_code_2(word: str) -> None:
    command = [sys.executable, "-m", "bushel", "serve", "bushel:tiny", "--speculate", word]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert "--speculate" in ended.stderr
    assert word in ended.stderr
