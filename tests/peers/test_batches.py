"""What other servers' suites ask of batches and of `priority` (B82, B83)."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.depth import one_in
from tests.peers.conftest import MODEL
from tests.server.server_process import Server, until

ENDED = ("completed", "failed", "cancelled", "expired")
CHAT = "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 10},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 4},
    "/v1/embeddings": {"input": "Hello"},
}


def batch_of(client: openai.OpenAI, lines: list[dict[str, Any]], url: Any) -> Any:
    data = "\n".join(map(json.dumps, lines)).encode()  # the last line has no end
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint=url, completion_window="24h", metadata={"by": "peers"}
    )

    def end() -> Any:
        found = client.batches.retrieve(batch.id)
        return found if found.status in ENDED else None

    return until(end, "the batch has ended")


def lines_of(client: openai.OpenAI, file_id: str) -> list[Any]:
    return [json.loads(line) for line in client.files.content(file_id).text.splitlines()]


@pytest.mark.parametrize("url", one_in(3, BODIES))
def test_a_batch_of_each_endpoint_is_completed(client: openai.OpenAI, url: str) -> None:
    body = {"model": MODEL, **BODIES[url]}
    lines = [{"custom_id": name, "method": "POST", "url": url, "body": body} for name in ("a", "b")]
    batch = batch_of(client, lines, url)
    assert (batch.status, batch.error_file_id) == ("completed", None)
    assert batch.request_counts.model_dump() == {"total": 2, "completed": 2, "failed": 0}
    found = lines_of(client, batch.output_file_id)
    assert {line["custom_id"] for line in found} == {"a", "b"}
    assert all(set(line) == {"id", "custom_id", "response", "error"} for line in found)


def test_a_line_with_a_wrong_model_is_an_error_and_the_others_are_answered(
    client: openai.OpenAI,
) -> None:
    lines = [
        {
            "custom_id": model,
            "method": "POST",
            "url": CHAT,
            "body": {**BODIES[CHAT], "model": model},
        }
        for model in (MODEL, "nobody")
    ]
    batch = batch_of(client, lines, CHAT)
    [good] = lines_of(client, batch.output_file_id)
    [bad] = lines_of(client, batch.error_file_id)
    assert (good["custom_id"], good["response"]["status_code"]) == (MODEL, 200)
    assert (bad["custom_id"], bad["response"]["status_code"]) == ("nobody", 404)


def test_a_batch_over_a_url_that_is_none_is_refused(client: openai.OpenAI) -> None:
    file = client.files.create(file=b"{}", purpose="batch")
    endpoint: Any = "/bad_url"
    with pytest.raises(openai.BadRequestError, match="endpoint"):
        client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")


def test_a_file_can_be_listed_read_and_deleted(client: openai.OpenAI) -> None:
    file = client.files.create(file=("mine.jsonl", b"{}\n"), purpose="batch")
    assert (file.filename, file.bytes, file.status) == ("mine.jsonl", 3, "processed")
    assert file.id in [each.id for each in client.files.list(purpose="batch")]
    assert client.files.content(file.id).content == b"{}\n"
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


@pytest.mark.parametrize("priority", [-1, 0, 100])
def test_a_request_may_have_a_priority(server: Server, priority: int) -> None:
    body = {**BODIES[CHAT], "priority": priority}
    assert server.http.post(CHAT, json=body).status_code == 200
