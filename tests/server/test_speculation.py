"""Tokens that are guessed ahead, as clients see them: they are counted, and change nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.server.server_process import FEW, PATIENCE, Server, serving
from tests.server.test_metrics import samples

COUNTED = "one two three four five six seven eight nine ten"
QUESTIONS = [
    f"Say this again: {COUNTED}, {COUNTED}",
    "Repeat: red green blue, red green blue, red green blue.",
    "What is the capital of France?",
]
NAMES = {
    "drafted": "vllm:spec_decode_num_draft_tokens_total",
    "accepted": "vllm:spec_decode_num_accepted_tokens_total",
}


def body(question: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": question}]
    return {"messages": messages, "max_tokens": 60, "temperature": 0, **more}


def ask(server: Server, question: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """What is said, and its usage."""
    answer = server.http.post("/v1/chat/completions", json=body(question, **more))
    told = answer.raise_for_status().json()
    return told["choices"][0]["message"]["content"], told["usage"]


def drafts(usage: dict[str, Any]) -> tuple[int, int]:
    """How many were tried, and how many held."""
    details = usage["completion_tokens_details"]
    held = details["accepted_prediction_tokens"]
    return held + details["rejected_prediction_tokens"], held


def told(server: Server) -> dict[str, Any]:
    return dict(server.status()["engine"]["speculation"])


def measured(server: Server) -> dict[str, float]:
    found = samples(server.http.get("/metrics").raise_for_status().text)
    return {name: found[metric] for name, metric in NAMES.items()} | {
        "drafts": found["vllm:spec_decode_num_drafts_total"],
        "first": found["vllm:spec_decode_num_accepted_tokens_per_pos_total{position=0}"],
    }


def test_without_any_flag_drafts_hold_and_are_told(tiny: Server) -> None:
    """In usage, in the status and in the metrics, which agree."""
    status, metrics = told(tiny), measured(tiny)
    counts = [drafts(ask(tiny, question)[1]) for question in QUESTIONS]
    drafted, accepted = map(sum, zip(*counts, strict=True))
    assert 0 < accepted <= drafted
    assert told(tiny)["drafted"] - status["drafted"] == drafted
    assert told(tiny)["accepted"] - status["accepted"] == accepted
    assert {"lookup", "mtp"} == set(told(tiny)["drafters"])
    now = measured(tiny)
    assert now["drafted"] - metrics["drafted"] == drafted
    assert now["accepted"] - metrics["accepted"] == accepted
    assert 0 < now["first"] - metrics["first"] <= now["drafts"] - metrics["drafts"]


def test_a_stream_tells_the_same_at_its_end(tiny: Server) -> None:
    text, usage = ask(tiny, QUESTIONS[0])
    asked = body(QUESTIONS[0], stream=True, stream_options={"include_usage": True})
    lines = tiny.http.post("/v1/chat/completions", json=asked).text.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    said = [choice["delta"].get("content") or "" for it in chunks for choice in it["choices"]]
    assert "".join(said) == text
    assert drafts(chunks[-1]["usage"]) == drafts(usage)


@pytest.mark.parametrize("more", [{}, {"temperature": 0.8, "seed": 5}], ids=["greedy", "sampled"])
def test_who_wants_no_drafts_gets_none_and_the_same_reply(
    tiny: Server, more: dict[str, Any]
) -> None:
    for question in QUESTIONS:
        text, usage = ask(tiny, question, **more)
        plain, without = ask(tiny, question, speculate=False, **more)
        assert plain == text
        assert drafts(without) == (0, 0)
        assert without["completion_tokens"] == usage["completion_tokens"]


def test_a_server_without_drafts_says_why_and_the_same(tiny: Server) -> None:
    with serving("--speculate", "off", *FEW) as server:
        for question in QUESTIONS:
            text, usage = ask(server, question)
            assert text == ask(tiny, question)[0]
            assert drafts(usage) == (0, 0)
        status = told(server)
        assert (status["drafters"], status["why_off"]) == ([], "it is switched off")
        assert (status["drafted"], status["accepted"]) == (0, 0)


@pytest.mark.parametrize("word", ["ngram", "on", "5"])
def test_a_word_that_names_nobody_is_one_line_and_exit_code_2(word: str) -> None:
    command = [sys.executable, "-m", "bushel", "serve", "bushel:tiny", "--speculate", word]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert "--speculate" in ended.stderr
    assert word in ended.stderr
