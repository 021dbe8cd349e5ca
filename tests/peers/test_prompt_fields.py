"""Prompts that are cut, prompts with a text behind the reply, and small fields of other APIs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import openai
import pytest

import bushel
from tests.depth import one_in
from tests.peers.conftest import MODEL
from tests.peers.test_counting import SEEN, SUM
from tests.server.server_process import FEW, Server, serving

TINY = Path(str(bushel.__file__)).parent / "tiny"
UNUSED = ("</tool_call>", "<tool_response>", "</tool_response>")  # by a completion
LONG = "one two three four five six seven eight nine ten eleven twelve"


def ids(server: Server, text: str) -> list[int]:
    tokens = server.http.post("/tokenize", json={"prompt": text}).json()["tokens"]
    return [int(token) for token in tokens]


def completed(server: Server, **body: Any) -> Any:
    asked = {"max_tokens": 6, "temperature": 0, **body}
    return server.http.post("/v1/completions", json=asked).raise_for_status().json()


@pytest.mark.parametrize("kept", one_in(3, [1, 5, 9.0]))
def test_the_last_tokens_of_a_prompt_are_kept(server: Server, kept: float) -> None:
    """The reply is the one to these tokens alone; texts and lists of ids are cut alike."""
    tokens = ids(server, LONG)
    alone = completed(server, prompt=tokens[-int(kept) :])
    for prompt in (LONG, tokens):
        cut = completed(server, prompt=prompt, truncate_prompt_tokens=kept)
        assert cut["usage"]["prompt_tokens"] == kept
        assert cut["choices"][0]["text"] == alone["choices"][0]["text"]


def test_a_short_prompt_and_minus_one_leave_it_as_it_is(server: Server) -> None:
    whole = completed(server, prompt=LONG)
    for kept in (-1, 1000):
        cut = completed(server, prompt=LONG, truncate_prompt_tokens=kept)
        assert cut["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
        assert cut["choices"] == whole["choices"]


def test_a_prompt_longer_than_the_context_fits_when_it_is_cut(server: Server) -> None:
    [model] = server.http.get("/v1/models").json()["data"]
    context = model["max_model_len"]
    prompt = [ids(server, LONG)[-1]] * (context + 9)
    refused = server.http.post("/v1/completions", json={"prompt": prompt})
    assert refused.status_code == 400
    reply = completed(server, prompt=prompt, truncate_prompt_tokens=64)
    assert reply["usage"]["prompt_tokens"] == 64


def test_a_conversation_is_cut_and_counted_alike(server: Server) -> None:
    body = {"messages": [{"role": "user", "content": LONG}], "truncate_prompt_tokens": 7}
    asked = server.http.post("/v1/chat/completions", json={**body, "max_tokens": 2}).json()
    counted = server.http.post("/tokenize", json=body).json()
    whole = server.http.post("/tokenize", json={"messages": body["messages"]}).json()
    assert asked["usage"]["prompt_tokens"] == counted["count"] == 7
    assert counted["tokens"] == whole["tokens"][-7:]


@pytest.mark.parametrize("kept", [0, -2, 1.5, "all", 1 << 30, True])
def test_a_cut_that_makes_no_sense_is_refused_by_name(server: Server, kept: Any) -> None:
    for route, body in (("completions", {"prompt": LONG}), ("chat/completions", {"messages": SUM})):
        asked = {**body, "truncate_prompt_tokens": kept}
        reply = server.http.post(f"/v1/{route}", json=asked)
        assert reply.status_code == 400
        assert "truncate_prompt_tokens" in reply.json()["error"]["message"]


def test_pictures_are_not_cut(server: Server) -> None:
    body = {"messages": SEEN, "truncate_prompt_tokens": 4}
    reply = server.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "truncate_prompt_tokens"


@pytest.mark.parametrize("more", [{"truncate_prompt_tokens": 3}, {"suffix": "b"}])
def test_an_echo_is_of_the_whole_prompt(server: Server, more: dict[str, Any]) -> None:
    reply = server.http.post("/v1/completions", json={"prompt": "a", "echo": True, **more})
    assert reply.status_code == 400
    assert next(iter(more)) in reply.json()["error"]["message"]


def test_a_suffix_needs_a_model_that_fills_in_the_middle(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="fim_prefix") as refused:
        client.completions.create(model=MODEL, prompt="def f(", suffix="return 1")
    assert refused.value.param == "suffix"
    assert client.completions.create(model=MODEL, prompt="def f(", suffix="").choices


def test_stream_options_are_a_hint_in_responses(client: openai.OpenAI, server: Server) -> None:
    events = list(
        client.responses.create(
            model=MODEL,
            input="Hello!",
            max_output_tokens=3,
            stream=True,
            stream_options={"include_obfuscation": False},
        )
    )
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert "stream_options" in server.log


def test_whole_numbers_may_have_a_point(server: Server) -> None:
    """To JSON, 2.0 is an integer."""
    body: dict[str, Any] = {"query": "a", "documents": ["a", "b", "c"], "top_n": 2.0}
    assert len(server.http.post("/v1/rerank", json=body).json()["results"]) == 2
    refused = server.http.post("/v1/rerank", json={**body, "top_n": 2.5})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "top_n"


@pytest.mark.long
def test_a_suffix_stands_behind_the_reply_where_the_tokenizer_has_tokens_for_it(
    tmp_path: Path,
) -> None:
    """In the order that the model learnt, which the reply's prompt tells."""
    folder = tmp_path / "infill"
    shutil.copytree(TINY, folder)
    said = json.loads((folder / "tokenizer.json").read_text())
    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    taken = [token for token in said["added_tokens"] if token["content"] in UNUSED]
    for token, name in zip(taken, names, strict=True):
        said["model"]["vocab"].pop(token["content"], None)
        said["model"]["vocab"][name] = token["id"]
        token.update(content=name, special=True)
    (folder / "tokenizer.json").write_text(json.dumps(said))
    with serving(*FEW, model=str(folder)) as server:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="any")
        reply = client.completions.create(
            model="infill",
            prompt="one two",
            suffix=" four",
            max_tokens=4,
            temperature=0,
            extra_body={"return_token_ids": True},
        )
        first, behind, middle = (token["id"] for token in taken)
        expected = [first, *ids(server, "one two"), behind, *ids(server, " four"), middle]
        [choice] = reply.model_dump()["choices"]
        assert choice["prompt_token_ids"] == expected
        plain = completed(server, prompt=expected, max_tokens=4)
        assert choice["text"] == plain["choices"][0]["text"]
