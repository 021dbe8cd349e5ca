"""Files and batches over HTTP, with OpenAI's SDK: what is sent, and what comes back (B83)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.depth import one_in

from .server_process import FEW, PATIENCE, Server, serving, until

MODEL = "bushel:tiny"
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="session")
def server(several_keys: Server) -> Server:
    return several_keys


def client_of(server: Server, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, timeout=PATIENCE, max_retries=0)


@pytest.fixture(scope="module")
def one(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server, "alice") as client:
        yield client


@pytest.fixture(scope="module")
def two(server: Server) -> Iterator[openai.OpenAI]:
    with client_of(server, "bob") as client:
        yield client


def question(at: int, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": f"What is {at} + 4?"}]
    return {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 12, **more}


def line(custom_id: str, body: Any, url: str = CHAT, **more: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more}


def encoded(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in lines)


def sent(client: openai.OpenAI, data: bytes, name: str = "requests.jsonl") -> str:
    return client.files.create(file=(name, data), purpose="batch").id


def begun(client: openai.OpenAI, lines: list[dict[str, Any]], url: Any = CHAT) -> Any:
    file_id = sent(client, encoded(lines))
    return client.batches.create(
        input_file_id=file_id, endpoint=url, completion_window="24h", metadata={"for": "a test"}
    )


def ended(client: openai.OpenAI, batch_id: str) -> Any:
    def end() -> Any:
        batch = client.batches.retrieve(batch_id)
        over = batch.status in ("completed", "failed", "cancelled", "expired")
        return batch if over else None

    return until(end, "the batch has ended")


def results(client: openai.OpenAI, file_id: str | None) -> dict[str, Any]:
    """By their custom ids, each of which is there once."""
    if file_id is None:
        return {}
    lines = [json.loads(each) for each in client.files.content(file_id).text.splitlines()]
    by_id = {each["custom_id"]: each for each in lines}
    assert len(by_id) == len(lines)
    return by_id


def refused(call: Any, status: int, param: str | None = None) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    assert caught.value.status_code == status
    assert param is None or caught.value.param == param  # type: ignore[attr-defined]
    return caught.value


# -- batches -----------------------------------------------------------------------------------


def test_a_batch_gets_the_answers_that_its_requests_get_alone(one: openai.OpenAI) -> None:
    """Good answers are in one file and bad ones in another, each in OpenAI's form. B83."""
    lines = [line(f"sum {at}", question(at)) for at in range(20)]
    lines.append(line("hot", question(1, temperature="hot")))
    lines.append(line("stream", question(1, stream=True)))
    lines.append(line("nobody", question(1, model="nobody")))
    batch = begun(one, lines)
    assert (batch.object, batch.status, batch.endpoint) == ("batch", "validating", CHAT)
    batch = ended(one, batch.id)
    assert batch.status == "completed"
    assert (batch.request_counts.total, batch.request_counts.completed) == (23, 20)
    assert (batch.request_counts.failed, batch.metadata) == (3, {"for": "a test"})
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at
    good, bad = results(one, batch.output_file_id), results(one, batch.error_file_id)
    assert good.keys() == {f"sum {at}" for at in range(20)}
    for at in (0, 7, 19):
        alone = one.chat.completions.create(**question(at))
        found = good[f"sum {at}"]
        assert found["error"] is None
        assert found["response"]["status_code"] == 200
        assert found["response"]["request_id"]
        body = found["response"]["body"]
        assert body["choices"][0]["message"]["content"] == alone.choices[0].message.content
        assert body["usage"]["completion_tokens"] == alone.usage.completion_tokens  # type: ignore[union-attr]
    told = {
        name: (it["response"]["status_code"], it["response"]["body"]["error"]["param"])
        for name, it in bad.items()
    }
    assert told == {
        "hot": (400, "temperature"),
        "stream": (400, "stream"),
        "nobody": (404, "model"),
    }


OTHERS = {
    "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 4},
    "/v1/embeddings": {"input": "Once upon a time"},
    "/v1/responses": {"input": "What is 3 + 4?", "max_output_tokens": 12},
}


def test_every_endpoint_can_be_asked(one: openai.OpenAI) -> None:
    """Batches of one key run one after the other, whatever they ask. B83."""
    batches = {
        url: begun(one, [line("it", {"model": MODEL, **body}, url)], url)
        for url, body in OTHERS.items()
    }
    for url, batch in batches.items():
        done = ended(one, batch.id)
        assert done.status == "completed", url
        found = results(one, done.output_file_id)["it"]["response"]
        assert found["status_code"] == 200
        assert found["body"]["object"] in ("text_completion", "list", "response")


WRONG = [
    ("invalid_json_line", b"{"),
    ("invalid_request", json.dumps({"custom_id": "a", "method": "POST", "url": CHAT}).encode()),
    ("mismatched_url", encoded([line("a", {}, "/v1/completions")])),
    ("invalid_method", encoded([line("a", {}, method="GET")])),
    ("invalid_body", encoded([line("a", [])])),
    ("invalid_custom_id", encoded([line("", {})])),
    ("duplicate_custom_id", encoded([line("a", {}), line("a", {})])),
    ("empty_file", b"\n\n"),
]


def test_a_file_that_is_no_batch_fails_and_the_lines_are_named(one: openai.OpenAI) -> None:
    """Nothing of it is asked. B83."""
    for code, data in WRONG:
        file_id = sent(one, data)
        batch = one.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        batch = ended(one, batch.id)
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        [error] = batch.errors.data
        wanted = None if code == "empty_file" else data.rstrip().count(b"\n") + 1
        assert (error.code, error.line) == (code, wanted)
        assert batch.output_file_id is None


def test_a_batch_that_is_cancelled_keeps_what_was_answered(one: openai.OpenAI) -> None:
    """And what it has not asked is not asked. B83."""
    lines = [line(str(at), question(at, max_tokens=60, ignore_eos=True)) for at in range(300)]
    batch = begun(one, lines)
    until(lambda: one.batches.retrieve(batch.id).request_counts.completed >= 1, "some are done")
    refused(lambda: one.files.delete(batch.input_file_id), 409)
    waiting = begun(one, lines)  # behind it
    assert one.batches.cancel(waiting.id).status == "cancelled"
    assert one.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    batch = ended(one, batch.id)
    assert batch.status == "cancelled"
    assert batch.cancelling_at is not None
    assert batch.cancelled_at is not None
    count = batch.request_counts.completed
    assert 1 <= count < 300
    assert len(results(one, batch.output_file_id)) == count
    refused(lambda: one.batches.cancel(batch.id), 409)
    assert one.files.delete(batch.input_file_id).deleted


def test_what_is_wrong_with_a_request_for_a_batch_is_named(one: openai.OpenAI) -> None:
    file_id = sent(one, encoded([line("a", {})]))

    def create(**more: Any) -> Any:
        known = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
        return lambda: one.batches.create(**{**known, **more})

    refused(create(input_file_id="file-none"), 404)
    refused(create(endpoint="/v1/moderations"), 400, "endpoint")
    refused(create(completion_window="soon"), 400, "completion_window")
    refused(create(metadata={str(at): "" for at in range(17)}), 400, "metadata")
    refused(lambda: one.batches.retrieve("batch_none"), 404)
    refused(lambda: one.batches.list(after="batch_none"), 400, "after")


# -- files -------------------------------------------------------------------------------------


def test_a_file_comes_back_as_it_was_sent(one: openai.OpenAI) -> None:
    """Whatever it says: no byte of it is taken for the form's around it. B83."""
    data = b"\r\n--x\r\n\x00\xff\r\n\r\n" + "ä\n".encode() * 100
    file = one.files.create(
        file=('a "b".jsonl', data),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    assert (file.object, file.bytes, file.purpose) == ("file", len(data), "batch")
    assert file.expires_at == file.created_at + 3600
    assert one.files.content(file.id).content == data
    assert one.files.retrieve(file.id) == file
    assert one.files.delete(file.id).deleted
    refused(lambda: one.files.retrieve(file.id), 404)


def test_files_and_batches_are_listed_in_pages(two: openai.OpenAI) -> None:
    made = [sent(two, b"{}") for _ in range(5)]
    newest = [file.id for file in two.files.list(limit=2, purpose="batch")]
    assert sorted(newest) == sorted(made)  # all pages, one after the other
    assert [file.id for file in two.files.list(order="asc")] == newest[::-1]
    assert not [*two.files.list(purpose="batch_output")]
    batches = [
        two.batches.create(input_file_id=made[0], endpoint=CHAT, completion_window="1h").id
        for _ in range(3)
    ]
    assert sorted(batch.id for batch in two.batches.list(limit=2)) == sorted(batches)
    for batch_id in batches:
        ended(two, batch_id)


def test_what_is_no_form_is_refused(server: Server, one: openai.OpenAI) -> None:
    """With a 400 that names the field, or says why. B83."""
    refused(lambda: one.files.create(file=b"{}", purpose="vision"), 400, "purpose")
    headers = {"authorization": "Bearer alice"}

    def posted(content: bytes, kind: str) -> httpx.Response:
        more = {**headers, "content-type": kind}
        return server.http.post("/v1/files", content=content, headers=more)

    form = "multipart/form-data; boundary=x"
    name = b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    assert posted(b"{}", "application/json").status_code == 400
    assert posted(b"{}", "text/plain").status_code == 415
    assert posted(b"", "multipart/form-data").json()["error"]["code"] == "invalid_form"
    for content in (b"", b"--x", name, b"--x\r\n\r\n\r\n--x--", b"--x\r\n" * 100):
        assert posted(content, form).json()["error"]["code"] == "invalid_form", content
    assert posted(name + b"--x--", form).json()["error"]["param"] == "file"
    other = {"content-type": form}
    assert server.http.post(CHAT, content=name, headers={**headers, **other}).status_code == 415


# -- whose they are ----------------------------------------------------------------------------


def test_another_key_finds_nothing(server: Server, one: openai.OpenAI, two: openai.OpenAI) -> None:
    """To it there is no such file and no such batch; an operator sees both. B83, B68."""
    batch = ended(one, begun(one, [line("a", question(1))]).id)
    for file_id in (batch.input_file_id, batch.output_file_id):
        refused(lambda: two.files.retrieve(file_id), 404)  # noqa: B023
        refused(lambda: two.files.content(file_id), 404)  # noqa: B023
        refused(lambda: two.files.delete(file_id), 404)  # noqa: B023
        assert file_id not in {file.id for file in two.files.list()}
    refused(lambda: two.batches.retrieve(batch.id), 404)
    refused(lambda: two.batches.cancel(batch.id), 404)
    refused(
        lambda: two.batches.create(
            input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"
        ),
        404,
    )
    assert batch.id not in {other.id for other in two.batches.list()}
    with client_of(server, "root") as root:
        assert root.batches.retrieve(batch.id) == batch
        assert root.files.content(str(batch.output_file_id)).text


def test_nobody_can_say_whose_a_request_is_but_by_its_key(server: Server) -> None:
    """What the server tells itself has a name that HTTP does not know."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as raw:
        raw.sendall(b"GET /v1/files HTTP/1.1\r\nhost: localhost\r\nbushel owner: x\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 400")


# -- priority ----------------------------------------------------------------------------------

BODIES = {
    CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "/v1/embeddings": {"input": "Hi"},
    "/v1/score": {"text_1": "Hi", "text_2": "Hi"},
}


@pytest.mark.parametrize("url", one_in(2, BODIES))
def test_a_priority_is_taken_or_refused_by_name(server: Server, url: str) -> None:
    def asked(priority: object) -> httpx.Response:
        headers = {"authorization": "Bearer alice"}
        return server.http.post(url, json={**BODIES[url], "priority": priority}, headers=headers)

    for good in (0, -3, 5.0, None):
        assert asked(good).status_code == 200
    for wrong in ("high", 1.5, 1 << 40, True):
        response = asked(wrong)
        assert response.status_code == 400
        assert "priority" in response.json()["error"]["message"]


@pytest.fixture(scope="module")
def narrow() -> Iterator[Server]:
    with serving(*FEW, "--max-num-seqs", "1") as running:
        yield running


@pytest.mark.long
def test_the_lowest_value_is_answered_first_and_a_batch_last(narrow: Server) -> None:
    """One reply runs at a time: who waits goes by priority, not by arrival. B82."""
    priorities = [4, 1, -1, 2]
    with client_of(narrow, "any") as client:
        more = {"ignore_eos": True}
        long = client.completions.create(
            model=MODEL, prompt="Once", max_tokens=4000, stream=True, extra_body=more
        )
        next(iter(long))
        batch = begun(client, [line("a", question(1))])
        until(lambda: narrow.status()["waiting"] == 1, "the batch waits")

        def ask(priority: int) -> None:
            # Known by its length afterwards.
            body = {"prompt": "Once", "max_tokens": 20 + priority, "priority": priority, **more}
            narrow.http.post("/v1/completions", json=body).raise_for_status()

        threads = [threading.Thread(target=ask, args=(each,)) for each in priorities]
        for thread in threads:
            thread.start()
        until(lambda: narrow.status()["waiting"] == 1 + len(priorities), "all wait")
        long.close()
        for thread in threads:
            thread.join()
        assert ended(client, batch.id).request_counts.completed == 1
    newest = narrow.status()["recent"][: 1 + len(priorities)]
    assert newest[0]["api"] == "chat"  # the batch's
    told = [request["completion_tokens"] - 20 for request in newest[:0:-1]]
    assert told == sorted(priorities)
