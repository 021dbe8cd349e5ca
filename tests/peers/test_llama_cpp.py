"""llama.cpp's clients find `/completion`, `/props` and `/apply-template` as they know them."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest

from tests.depth import often, one_in
from tests.peers.conftest import MODEL
from tests.server.server_process import Server

SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
GBNF = 'root ::= "It is " number "."\nnumber ::= [0-9] [0-9]?'
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["answer"],
    "additionalProperties": False,
}
HOT = {"temperature": 2, "seed": 3, "n_predict": 200}


def completed(server: Server, prompt: Any = "3 + 4 =", **fields: Any) -> Any:
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, **fields}
    reply = server.http.post("/completion", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def pieces(server: Server, prompt: Any = "3 + 4 =", **fields: Any) -> list[dict[str, Any]]:
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, "stream": True, **fields}
    reply = server.http.post("/completion", json=body)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in reply.text
    lines = [line for line in reply.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def tokens(server: Server, text: str, special: bool = False) -> list[int]:
    body = {"content": text, "add_special": special}
    return list(server.http.post("/tokenize", json=body).json()["tokens"])


# -- one reply ---------------------------------------------------------------------------------


def test_a_completion_says_what_openais_api_says(server: Server, client: openai.OpenAI) -> None:
    made = completed(server)
    expected = client.completions.create(model=MODEL, prompt="3 + 4 =", max_tokens=8, temperature=0)
    assert made["content"] == expected.choices[0].text
    assert expected.usage is not None
    assert made["tokens_evaluated"] == expected.usage.prompt_tokens
    assert made["tokens_predicted"] == expected.usage.completion_tokens
    assert (made["stop"], made["model"], made["prompt"]) == (True, MODEL, "3 + 4 =")


def test_a_stream_adds_up_to_the_whole(server: Server) -> None:
    whole, streamed = completed(server, return_tokens=True), pieces(server)
    assert "".join(piece["content"] for piece in streamed) == whole["content"]
    assert [one for piece in streamed for one in piece["tokens"]] == whole["tokens"]
    assert [piece["stop"] for piece in streamed] == [False] * (len(streamed) - 1) + [True]
    last = streamed[-1]
    for name in ("stop_type", "tokens_predicted", "tokens_evaluated", "stopping_word"):
        assert last[name] == whole[name]
    predicted = [piece["tokens_predicted"] for piece in streamed]
    assert predicted == sorted(predicted)


@pytest.mark.parametrize("stream", often([False, True], True))
@pytest.mark.parametrize(
    ("fields", "kind", "word"),
    [
        ({"n_predict": 2, "ignore_eos": True}, "limit", ""),
        ({"prompt": "Q: 3 + 4 =", "stop": ["7", "3"], "n_predict": 64}, "word", None),
        ({"prompt": [], "n_predict": -1}, "eos", ""),
    ],
    ids=["limit", "word", "eos"],
)
def test_what_ended_it_is_told(
    server: Server, fields: dict[str, Any], kind: str, word: str | None, stream: bool
) -> None:
    if fields.get("prompt") == []:  # a conversation, which the model ends by itself
        made = server.http.post("/apply-template", json={"messages": SUM}).json()
        fields = {**fields, "prompt": made["prompt"]}
    last = pieces(server, **fields)[-1] if stream else completed(server, **fields)
    assert last["stop_type"] == kind
    assert last["stopping_word"] == word if word is not None else last["stopping_word"] in "73"


def test_tokens_come_if_they_are_asked_for(server: Server) -> None:
    assert completed(server)["tokens"] == []
    assert len(completed(server, return_tokens=True, ignore_eos=True)["tokens"]) == 8


def test_timings_are_told(server: Server) -> None:
    made = completed(server, ignore_eos=True)
    timings = made["timings"]
    assert timings["predicted_n"] == made["tokens_predicted"] == 8
    assert timings["prompt_n"] + timings["cache_n"] == made["tokens_evaluated"]
    assert timings["predicted_ms"] > 0
    assert timings["predicted_per_second"] == pytest.approx(8000 / timings["predicted_ms"])
    assert "timings" not in pieces(server)[0]
    assert "timings" in pieces(server, timings_per_token=True)[0]


def test_a_prompt_is_read_and_nothing_said(server: Server) -> None:
    made = completed(server, n_predict=0)
    assert (made["content"], made["tokens_predicted"], made["stop_type"]) == ("", 0, "limit")
    assert [piece["stop"] for piece in pieces(server, n_predict=0)] == [True]


# -- prompts -----------------------------------------------------------------------------------


def test_a_prompt_may_be_text_ids_or_both(server: Server) -> None:
    whole = tokens(server, "3 + 4 =", special=True)
    mixed: list[Any] = ["3 + ", *tokens(server, "4 =")]
    expected = completed(server)
    for prompt in (whole, mixed, {"prompt_string": "3 + 4 ="}):
        made = completed(server, prompt)
        assert made["content"] == expected["content"]
        assert made["tokens_evaluated"] == expected["tokens_evaluated"]
        assert made["prompt"].endswith("3 + 4 =")


def test_several_prompts_have_several_replies(server: Server) -> None:
    prompts = ["3 + 4 =", "Once upon", tokens(server, "2 + 2 =", special=True)]
    made = completed(server, prompts)
    assert [one["index"] for one in made] == [0, 1, 2]
    alone = [completed(server, prompt)["content"] for prompt in prompts]
    assert [one["content"] for one in made] == alone
    streamed = pieces(server, prompts)
    for at, text in enumerate(alone):
        of_it = [piece for piece in streamed if piece["index"] == at]
        assert "".join(piece["content"] for piece in of_it) == text
        assert of_it[-1]["stop"]


# -- how tokens are chosen ---------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_is_kept(server: Server, stream: bool) -> None:
    """So hot that a model which may say anything says something else. B71."""
    fields: dict[str, Any] = {**HOT, "grammar": GBNF}
    if stream:
        text = "".join(piece["content"] for piece in pieces(server, **fields))
    else:
        text = completed(server, **fields)["content"]
    assert re.fullmatch(r"It is [0-9]{1,2}\.", text)


def test_a_schema_is_kept(server: Server) -> None:
    made = completed(server, json_schema=SCHEMA, **HOT)
    assert list(json.loads(made["content"])) == ["answer"]


def test_likely_tokens_are_listed(server: Server) -> None:
    listed = completed(server, n_probs=3, ignore_eos=True)["completion_probabilities"]
    assert len(listed) == 8
    for entry in listed:
        assert len(entry["top_logprobs"]) == 3
        assert entry["id"] == entry["top_logprobs"][0]["id"]
        assert entry["logprob"] <= 0
        assert bytes(entry["bytes"]).decode(errors="replace") == entry["token"]
    streamed = pieces(server, n_probs=3, ignore_eos=True)
    told = [one for piece in streamed for one in piece.get("completion_probabilities", ())]
    assert [one["id"] for one in told] == [one["id"] for one in listed]
    assert "completion_probabilities" not in completed(server)


def test_a_bias_is_a_pair(server: Server) -> None:
    [first] = completed(server, n_predict=1, return_tokens=True, ignore_eos=True)["tokens"]
    for bias in ([[first, False]], [[first, -100.0]], {str(first): -100.0}):
        made = completed(server, n_predict=1, return_tokens=True, ignore_eos=True, logit_bias=bias)
        assert made["tokens"] != [first]


@pytest.mark.long
def test_a_sampler_that_is_left_out_is_not_used(server: Server) -> None:
    """Greedy by its temperature, which does not count where the sampler is not there."""
    hot = [
        completed(server, "Tell me", samplers=["top_k"], seed=seed, n_predict=24)["content"]
        for seed in (1, 2)
    ]
    sure = [
        completed(server, "Tell me", samplers=["temperature"], seed=seed, n_predict=24)["content"]
        for seed in (1, 2)
    ]
    assert hot[0] != hot[1]
    assert sure[0] == sure[1]


@pytest.mark.parametrize("seed", one_in(2, [-1, 4294967295]))
def test_a_seed_of_chance_is_a_new_one_each_time(server: Server, seed: int) -> None:
    hot = {"temperature": 3, "n_predict": 32, "ignore_eos": True, "seed": seed}
    assert completed(server, "Tell me", **hot) != completed(server, "Tell me", **hot)


def test_a_prompt_that_was_read_is_not_read_again(server: Server) -> None:
    long = "one two three four five six seven eight nine ten " * 8
    first, second = completed(server, long), completed(server, long, cache_prompt=True)
    assert second["tokens_cached"] > first["tokens_evaluated"] - 3
    assert second["content"] == first["content"]


# -- what is refused ---------------------------------------------------------------------------

REFUSED: dict[str, dict[str, Any]] = {
    "mirostat": {"mirostat": 1},
    "dynatemp_range": {"dynatemp_range": 0.2},
    "repeat_last_n": {"repeat_last_n": 8, "presence_penalty": 0.5},
    "samplers": {"samplers": ["magic"]},
    "logit_bias[0]": {"logit_bias": [["word", 1]]},
    "t_max_predict_ms": {"t_max_predict_ms": 100},
    "post_sampling_probs": {"post_sampling_probs": True},
    "response_fields": {"response_fields": ["content"]},
    "lora": {"lora": [{"id": 0, "scale": 1}]},
    "n_predic": {"n_predic": 3},
    "prompt[1]": {"prompt": ["a", None]},
    "prompt": {"prompt": [1 << 30]},
    "multimodal_data": {"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_obeyed_is_refused_by_name(server: Server, name: str) -> None:
    reply = server.http.post("/completion", json={"prompt": "a", **REFUSED[name]})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["code"], error["type"]) == (400, "invalid_request_error")
    assert error["param"].endswith(name)
    assert error["param"] in error["message"]


SAMPLERS: dict[str, dict[str, Any]] = {
    "typical": {"typical_p": 0.4},
    "XTC": {"xtc_probability": 1.0, "xtc_threshold": 0.01},
    "DRY": {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    "sigma": {"top_n_sigma": 0.5},
    "window": {"repeat_penalty": 1.8, "repeat_last_n": 2},
}


@pytest.mark.parametrize("name", one_in(3, SAMPLERS))
def test_samplers_do_what_they_do_in_other_apis(server: Server, name: str) -> None:
    settings = {"temperature": 1.5, "seed": 7, **SAMPLERS[name]}
    body = {"prompt": "one two one two one", "n_predict": 12, **settings}
    said = server.http.post("/completion", json=body).json()["content"]
    body = {"prompt": "one two one two one", "max_tokens": 12, **settings}
    there = server.http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    assert said == there
    plain = {"temperature": 1.5, "seed": 7, "prompt": "one two one two one", "n_predict": 12}
    assert said != server.http.post("/completion", json=plain).json()["content"]


def test_a_grammar_that_is_none_is_refused(server: Server) -> None:
    reply = server.http.post("/completion", json={"prompt": "a", "grammar": "root ::= nothing"})
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == 400


def test_settings_that_are_off_are_no_reason_to_refuse(server: Server) -> None:
    """As clients send them that have read them from `/props`."""
    idle = {
        "typical_p": 1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "dynatemp_range": 0.0,
        "top_n_sigma": -1.0,
        "repeat_last_n": 64,
        "n_keep": 0,
        "min_keep": 0,
        "id_slot": -1,
        "t_max_predict_ms": 0,
        "cache_prompt": True,
    }
    settings = server.http.get("/props").json()["default_generation_settings"]["params"]
    assert completed(server, **{**settings, **idle, "n_predict": 8})["tokens_predicted"] > 0


# -- beside the model --------------------------------------------------------------------------


def test_properties_are_told(server: Server) -> None:
    told = server.http.get("/props").raise_for_status().json()
    card = server.http.get("/v1/models").json()["data"][0]
    assert told["default_generation_settings"]["n_ctx"] == card["max_model_len"]
    assert told["model_alias"] == MODEL
    assert told["modalities"] == {"vision": True, "audio": False}
    assert "message" in told["chat_template"]
    assert told["total_slots"] >= 1
    assert server.http.get("/props", params={"model": "nobody"}).status_code == 404


@pytest.mark.parametrize("more", [{}, {"chat_template_kwargs": {"enable_thinking": True}}], ids=str)
def test_a_conversation_as_text_runs_the_same_tokens(server: Server, more: Any) -> None:
    """What comes of a template can be sent as a prompt. B72."""
    messages = [{"role": "system", "content": "You are kind."}, *SUM]
    body = {"messages": messages, **more}
    made = server.http.post("/apply-template", json=body).raise_for_status().json()
    counted = server.http.post("/tokenize", json=body).json()
    assert "You are kind." in made["prompt"]
    assert tokens(server, made["prompt"], special=True) == counted["tokens"]
    replied = server.http.post("/completion", json={**made, "n_predict": 4, "temperature": 0})
    assert replied.json()["tokens_evaluated"] == counted["count"]


def test_openais_route_without_its_version_stays_openais(server: Server) -> None:
    reply = server.http.post("/completions", json={"prompt": "a", "max_tokens": 2}).json()
    assert reply["object"] == "text_completion"
