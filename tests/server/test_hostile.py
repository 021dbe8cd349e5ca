"""What attackers send to servers like this, one request after the other, to a real one.

All are answered as documented while somebody else's stream goes on.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from pathlib import Path

import pytest

import bushel
from bushel.core.wire import Encode, Made, MediaRules, Open
from bushel.server.errors import ApiError
from bushel.server.processes.pool import Pool
from tests.server.hostile_requests import (
    KEY,
    Answer,
    Beside,
    Listener,
    Raw,
    Sent,
    ask,
    chat,
    dribbling,
    film,
    leaks,
    media_folder,
    picture,
)
from tests.server.leaving_clients import settled
from tests.server.server_process import PATIENCE, Server, alive, children, serving, until
from tests.server.threat_table import ROWS


def wrong_with(answer: Answer, expected: str, *paths: str) -> str | None:
    """`paths`: further places that an answer must not tell."""
    if answer.short != expected:
        return f"{answer.short}, not {expected}: {answer.text[:300]}"
    if answer.status >= 400 and (found := leaks(answer.text, *paths)):
        return f"tells {', '.join(found)}: {answer.text[:300]}"
    return None


def wrong(server: Server, request: Sent | Raw, expected: str, folder: str) -> str | None:
    sent = request.data if isinstance(request, Raw) else request.content
    own = () if folder.encode() in sent else (folder,)  # what the client named is no news to it
    try:
        return wrong_with(ask(server, request), expected, *own)
    except Exception as error:
        return repr(error)


@pytest.mark.long
def test_hostile_requests_are_refused_one_by_one_and_nobody_else_notices() -> None:
    """While they run, clients that never finish their requests hold connections open. B48."""
    listener = Listener()
    found: dict[str, str] = {}
    with media_folder() as root, serving(*strict(f"{root}/media")) as server:
        server.http.headers["authorization"] = f"Bearer {KEY}"
        kin = children(server.process.pid)
        with Beside(server, tokens=200) as beside, dribbling(server, 40):
            for row, cases in ROWS.items():
                for name, request, expected in cases(listener.port, f"{root}/media"):
                    if problem := wrong(server, request, expected, root):
                        found[f"{row}: {name}"] = problem
        assert found == {}
        assert beside.noticed() is None
        assert len(beside.heard) > 1  # or most of it ran without anyone beside it
        assert listener.calls == 0
        assert_unharmed(server, kin)
    listener.close()


def strict(folder: str) -> list[str]:
    """Fetching and files are allowed, or it would be no feat to refuse them."""
    media = ["--allow-remote-media", "--media-path", folder]
    return [*media, "--api-key", KEY, "--max-body-mb", "1"]


def assert_unharmed(server: Server, kin: list[int]) -> None:
    """No process was lost, and nothing is left of any request."""
    assert server.health() == 200
    assert server.process.poll() is None
    assert all(map(alive, kin))
    assert children(server.process.pid) == kin
    status = settled(server)
    assert status["engine"]["restarts"] == 0
    assert "Traceback" not in server.log


def test_nothing_is_fetched_or_opened_unless_the_server_was_told_to(tiny: Server) -> None:
    """Not even to look whether it is there: what exists and what does not are the same."""
    listener = Listener()
    here = f"127.0.0.1:{listener.port}"
    urls = [f"http://{here}/a.png", f"https://{here}/", "https://example.org/a.png"]
    files = ["/etc/passwd", "/nowhere", "file:///etc/passwd", "file:///nowhere", "../x", "x"]
    with Beside(tiny, tokens=20) as beside:
        for url in urls + files:
            for content in (picture(url), film(url)):
                answer = ask(tiny, chat(content))
                assert wrong_with(answer, "400 invalid_media") is None
                assert ("not fetched" if url in urls else "not opened") in answer.text
        assert ask(tiny, chat(f"See ![it](http://{here}/a.png).")).status == 200
    assert beside.noticed() is None
    assert listener.calls == 0
    socket.create_connection(("127.0.0.1", listener.port)).close()
    assert until(lambda: listener.calls, "control: it hears a call") == 1
    listener.close()


def test_a_text_of_megabytes_is_refused_while_others_are_answered(tiny: Server) -> None:
    """Others do not wait while it is prepared; it is too long, and told so. B48, B50."""
    answers: list[Answer] = []

    def send() -> None:
        answers.append(ask(tiny, chat("Tell me more. " * 60_000)))

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    until(lambda: tiny.status()["preparing"], "it is being prepared")
    assert tiny.health() == 200
    assert answers == []  # that did not wait for it
    assert ask(tiny, chat()).status == 200
    sender.join(PATIENCE)
    answers.append(ask(tiny, chat("Tell me more. " * 250_000)))  # not even counted
    assert [wrong_with(answer, "400 context_length_exceeded") for answer in answers] == [None, None]


@pytest.mark.long
def test_what_takes_too_long_to_prepare_costs_its_worker_and_nobody_else(far_model: Path) -> None:
    """The worker is killed, the request refused, and the next one served by another. B48."""

    async def work() -> None:
        gate = asyncio.Event()
        gate.set()
        pool = Pool(Open(str(far_model), False, MediaRules()), 1, 0.1, gate)
        running = asyncio.create_task(pool.run())
        await pool.model_info
        [first] = [worker.child.pid for worker in pool._workers]
        long = pool.ask(Encode("1", "Tell me more. " * 1_000_000))
        short = pool.ask(Encode("2", "Hello"))
        refused, answer = await asyncio.gather(long, short, return_exceptions=True)
        assert isinstance(refused, ApiError)
        assert (refused.status, refused.code) == (400, "preparation_failed")
        assert isinstance(answer, tuple)
        assert isinstance(answer[0], Made)
        assert not alive(first)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(work())


# -- controls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        "<PIL.Image.Image object at 0x7f3a5c0d1e50>",
        "Traceback (most recent call last):",
        'File "serve.py", line 5, in run',
        f"No such file: {bushel.__file__}",
        f"{sys.prefix}/lib/site-packages/x",
        "<class 'int'> is wrong",
        "<function run at 0x7f00deadbeef>",
        "KeyError: 'x'",
        "StopIteration",
    ],
)
def test_an_answer_that_tells_too_much_is_noticed(message: str) -> None:
    text = json.dumps({"error": {"message": message, "code": "x"}})
    assert wrong_with(Answer(400, text), "400 x") is not None
    plain = json.dumps({"error": {"message": "A picture of 1x1 pixels.", "code": "x"}})
    assert wrong_with(Answer(400, plain), "400 x") is None
    assert wrong_with(Answer(500, plain), "400 x") is not None
    assert wrong_with(Answer(400, plain), "400 x", "picture") is not None


def test_a_stream_that_is_disturbed_is_noticed(tiny: Server) -> None:
    with Beside(tiny, tokens=400) as beside:
        [row] = until(lambda: tiny.status()["requests"], "it runs")
        assert tiny.http.delete(f"/v1/requests/{row['id']}").status_code == 200
    assert beside.problem is not None
    assert beside.noticed() is not None
    with Beside(tiny, tokens=20) as beside:
        until(lambda: beside.heard, "it was heard")
    assert beside.noticed() is None
    beside.heard[0] += "."
    assert beside.noticed() is not None
