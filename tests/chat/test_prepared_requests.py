"""What preparing finds out on its way to the engine: media, borders, and whose they are."""

import argparse
import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bushel.chat.process import answer
from bushel.chat.prompt import prepare, salt_of
from bushel.core import Borders, Media, Prepared, Request, RequestError
from bushel.core.options import ChatOptions, EngineOptions, ModelInfo
from bushel.core.params import SamplingParams, resolve
from bushel.core.status import EngineStatus
from bushel.core.wire import (
    Accepted,
    Assembler,
    FromWorker,
    Made,
    MediaRules,
    Open,
    Prepare,
    Submit,
    ToEngine,
    encode,
)
from bushel.engine.process import Process
from bushel.llm import LLM
from bushel.models.load import open_host
from bushel.server.command import flags
from bushel.server.command.options_of_flags import options_of_flags
from bushel.server.observability.metrics import Metrics
from bushel.server.service import service as real
from bushel.server.service.job import GenerationJob
from bushel.server.service.names import Names
from tests.chat.templates import templated
from tests.chat.test_client_headers import HEADER, PROMPT, QUESTION, system
from tests.families import checkpoint_dir
from tests.families.images import picture
from tests.llm.request_builders import chat, greedy, image, text
from tests.server.scripted_service import Service, ask, complete, options, run
from tests.server.scripted_service import chat as ask_chat

BORDERS = Borders(3, 5, 7, False)
MEDIA = (Media(1, 4, "ab"), Media(5, 6, "cd"))


def there_and_back(message: Any, kinds: Any) -> Any:
    [(found, _)] = Assembler[Any](kinds).feed(b"".join(encode(message)))
    return found


# -- from a worker to the engine -------------------------------------------------------------------


def test_a_worker_tells_media_and_borders() -> None:
    host = open_host(str(checkpoint_dir("qwen3_5_vl")))
    request = chat(text("See"), image(picture()))
    request["messages"].insert(0, system(PROMPT))
    made, _ = answer(host, Open("", False, MediaRules()), Prepare("a", request))
    assert isinstance(made, Made)
    wanted = prepare(host, request)
    assert wanted.media
    assert wanted.borders.system
    found = there_and_back(made, FromWorker)
    assert (found.media, found.borders) == (wanted.media, wanted.borders)


@pytest.mark.parametrize("keep", [False, True])
def test_a_worker_keeps_headers_if_it_is_told_to(keep: bool) -> None:
    """A client's header is in the prompt only if the server is told to keep it. B19."""
    host = templated("plain")
    request = {"messages": [system(HEADER, PROMPT), QUESTION]}
    made, _ = answer(
        host, Open("", False, MediaRules(), ChatOptions(keep_headers=keep)), Prepare("a", request)
    )
    assert isinstance(made, Made)
    assert ("cc_version" in host.tokenizer.decode(made.ids)) == keep


class Engine:
    """Takes requests."""

    def __init__(self) -> None:
        self.taken: list[Request] = []
        self.submit = self.taken.append

    def status(self) -> EngineStatus:
        return EngineStatus()


class Link:
    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.send = self.sent.append


def test_the_engine_gets_media_borders_and_salt() -> None:
    engine, link = Engine(), Link()
    decoding = resolve(
        SamplingParams(), open_host("bushel:tiny").defaults, vocab=9, end_ids=frozenset()
    )
    submit = Submit("a", (1, 2, 3), {}, decoding, 1, MEDIA, BORDERS, "mine")
    process = Process(engine, link, EngineOptions("m"))  # type: ignore[arg-type]
    process._submit(there_and_back(submit, ToEngine), memoryview(b""))
    assert link.sent == [Accepted("a")]
    [request] = engine.taken
    assert request.prompt == Prepared((1, 2, 3), {}, MEDIA, BORDERS)
    assert request.salt == "mine"


def test_the_front_passes_all_of_it_on() -> None:
    sent: list[Any] = []

    def send(message: Any, *_: Any) -> None:
        sent.append(message)
        if isinstance(message, Submit):
            front.engine_said(Accepted(message.id))

    async def made(*_: Any) -> tuple[Made, memoryview]:
        return Made("a", (1, 2, 3), {}, MEDIA, BORDERS), memoryview(b"")

    async def work() -> Any:
        nonlocal front
        given = options(chat_options=ChatOptions(keep_headers=True))
        front = real.Service(given, Names.of("test/model", (), ()), Metrics("test"))
        front.pool.model_info.set_result(ModelInfo("test/model", "", 9, 99, frozenset()))
        front.pool.ask = made  # type: ignore[method-assign]
        front.supervisor.ready = True
        front.supervisor.send = send
        front._model._vocabulary = SimpleNamespace(decode=None)
        front._model._learned.set()
        job = GenerationJob({}, SamplingParams(), "test/model", "chat", 5, salt="mine")
        with await front.open(job, asyncio.Event()):
            pass

    front: Any = None
    run(work())
    submit = sent[0]
    assert (submit.media, submit.borders, submit.salt) == (MEDIA, BORDERS, "mine")
    assert front.pool._first.chat_options.keep_headers


# -- salts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["chat", "completions"])
def test_a_salt_reaches_the_engine(path: str) -> None:
    service = Service()
    send = ask_chat if path == "chat" else complete
    for said in ("mine", "", None, "x" * 256):
        reply = send(service, cache_salt=said)
        assert reply.status_code == 200, reply.text
        assert service.jobs[-1].salt == (said or "")


@pytest.mark.parametrize("path", ["chat", "completions"])
@pytest.mark.parametrize("said", ["x" * 257, 5, True, ["a"]])
def test_a_salt_that_is_none_is_refused_by_name(path: str, said: Any) -> None:
    reply = (ask_chat if path == "chat" else complete)(Service(), cache_salt=said)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "cache_salt"
    with pytest.raises(RequestError) as caught:
        salt_of({"cache_salt": said})
    assert caught.value.param == "cache_salt"


def test_a_script_may_have_a_salt(monkeypatch: pytest.MonkeyPatch) -> None:
    with LLM("bushel:tiny") as llm:
        taken: list[Request] = []
        submit = llm._own_engine().submit
        monkeypatch.setattr(
            llm._own_engine(), "submit", lambda request: (taken.append(request), submit(request))
        )
        llm.generate([chat("Hello", cache_salt="mine"), chat("Hello")], greedy(1))
        assert [it.salt for it in taken] == ["mine", ""]
        [refused] = llm.generate(chat("Hello", cache_salt=5))
        assert "cache_salt" in str(refused.error)


def salted(per_key: bool, said: str | None, **headers: str) -> str:
    service = Service(options=options(cache_per_key=per_key))
    body = {"messages": [QUESTION], "cache_salt": said}
    ask(service, "POST", "/v1/chat/completions", json=body, headers=headers)
    return service.jobs[0].salt


def test_keys_share_nothing_if_that_is_asked_for() -> None:
    one, two = {"authorization": "Bearer sesame"}, {"authorization": "Bearer barley"}
    assert salted(False, "a", **one) == salted(False, "a", **two) == "a"
    found = {
        salted(True, None, **one),
        salted(True, None, **two),
        salted(True, "a", **one),
        salted(True, "a", **two),
        salted(True, None),
    }
    assert len(found) == 5
    assert salted(True, "a", **one) == salted(True, "a", **{"x-api-key": "sesame"})
    assert not any("sesame" in it or "barley" in it for it in found)


def test_flags() -> None:
    parser = argparse.ArgumentParser()
    flags.add(parser.add_subparsers())
    plain, _ = options_of_flags(parser.parse_args(["serve"]), {})
    assert (plain.chat_options, plain.cache_per_key) == (ChatOptions(), False)
    given = ["--keep-client-headers", "--cache-per-key", "--system-messages", "hoist"]
    given += ["--tool-format", "hermes", "--thinking-format", "think"]
    said, _ = options_of_flags(parser.parse_args(["serve", *given]), {})
    assert (said.chat_options, said.cache_per_key) == (
        ChatOptions(True, True, "hermes", "think"),
        True,
    )
    again, _ = options_of_flags(parser.parse_args(["serve", "--system-messages=fold"]), {})
    assert again.chat_options == ChatOptions()
