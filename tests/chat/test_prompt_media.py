"""Media inside whole requests: what a server's rules allow, and the part that is at fault."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bushel.chat.media import decode
from bushel.chat.media.fetch import Fetcher
from bushel.chat.prompt import prepare
from bushel.core import RequestError
from bushel.core.wire import MediaRules
from bushel.models import Preparer
from bushel.models.load import load
from tests.chat.media_files import encoded
from tests.chat.templates import templated
from tests.chat.web_site import Site, answer, open_site
from tests.families import checkpoint_dir
from tests.families.images import LARGE, MEDIUM, picture
from tests.llm.request_builders import chat, image, text

SERVER = MediaRules()
REMOTE = MediaRules(remote=True)


@pytest.fixture(scope="module")
def seeing() -> Iterator[Preparer]:
    model = load(str(checkpoint_dir("qwen3_5_vl")))
    yield model.host
    model.close()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A site on this machine, which counts as public."""
    monkeypatch.setattr(decode, "Fetcher", partial(Fetcher, allowed="127.0.0.1".__eq__))
    with open_site() as site:
        site.pages["/a.png"] = answer(encoded(picture(MEDIUM)))
        yield site


def refusal(host: Preparer, request: dict[str, Any], rules: MediaRules = SERVER) -> RequestError:
    with pytest.raises(RequestError) as caught:
        prepare(host, request, rules)
    return caught.value


def test_a_script_and_a_server_see_the_same_picture(
    seeing: Preparer, site: Site, tmp_path: Path
) -> None:
    """However it comes: in the request, from a file, from elsewhere."""
    picture(MEDIUM).save(tmp_path / "a.png")
    question = text("What is it?")
    wanted = prepare(seeing, chat(image(picture(MEDIUM)), question))
    below = MediaRules(folder=str(tmp_path))
    other = prepare(seeing, chat(image(picture(MEDIUM, 1)), question), SERVER)
    for source, rules in (
        (picture(MEDIUM), SERVER),
        ("a.png", below),
        ((tmp_path / "a.png").as_uri(), below),
        (site.url("/a.png"), REMOTE),
    ):
        found = prepare(seeing, chat(image(source), question), rules)
        assert found.ids == wanted.ids
        assert np.array_equal(found.tensors["pixel_values"], wanted.tensors["pixel_values"])
    assert not np.array_equal(other.tensors["pixel_values"], wanted.tensors["pixel_values"])


def test_a_url_in_a_text_is_text(seeing: Preparer, site: Site) -> None:
    """CVE-2026-0599."""
    link = site.url("/a.png")
    said = f"![a]({link}) <img src='{link}'> <image>{link}</image> data:image/png;base64,AAAA"
    request = chat(text(said), role="user")
    request["messages"].append({"role": "user", "content": link, "image_url": {"url": link}})
    found = prepare(seeing, request, REMOTE)
    assert not found.has_media
    assert link in seeing.tokenizer.decode(found.ids)
    tools = [{"type": "function", "function": {"name": "f", "description": link}}]
    prepare(templated("thinking"), chat(said, tools=tools), REMOTE)
    assert site.connections == 0
    prepare(seeing, chat(image(link), text("?")), REMOTE)  # a control: as a part it is fetched
    assert site.connections == 1


BAD_PARTS: list[Any] = [
    "text", 5, None, [], {}, {"type": None}, {"type": "text"}, {"type": "text", "text": 5},
    {"type": "image"}, {"type": "image", "url": "/etc/passwd"}, {"type": ["text"]},
    {"type": "input_audio", "input_audio": {}}, {"type": "file"}, {"type": "image_url"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,@"}},
    {"type": "image_url", "image_url": {"url": "/etc/passwd"}},
    {"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}},
    {"type": "image_url", "video_url": {"url": "data:,"}},
    {"type": "video_url", "video_url": {"url": "data:,"}},
]  # fmt: skip


@pytest.mark.parametrize("part", BAD_PARTS, ids=repr)
def test_a_malformed_part_is_named_by_its_place(seeing: Preparer, part: Any) -> None:
    """The error begins with the message's and the part's index. B17."""
    turns = [{"role": "user", "content": "hello"}, *chat(text("a"), text("b"), part)["messages"]]
    error = refusal(seeing, {"messages": turns})
    assert str(error).startswith("messages[1].content[2]")
    assert error.param == "messages"


def test_limits_are_of_the_whole_request(seeing: Preparer) -> None:
    shown = image(picture(MEDIUM))
    turns = [chat(shown, text("one"))["messages"][0] for _ in range(3)]
    error = refusal(seeing, {"messages": turns}, MediaRules(most_items=2))
    assert str(error).startswith("messages[2].content[0]: ")
    few = MediaRules(most_pixels=LARGE[0] * LARGE[1])
    many = [chat(image(picture(LARGE)), text("one"))["messages"][0] for _ in range(5)]
    assert str(refusal(seeing, {"messages": many}, few)).startswith("messages[4].content[0]: ")
    assert prepare(seeing, {"messages": many[:4]}, few).has_media


def test_a_bad_request_is_refused_before_its_media_are_fetched(
    seeing: Preparer, site: Site
) -> None:
    request = chat(image(site.url("/a.png")), chat_template_kwargs={"tokenize": True})
    assert "tokenize" in str(refusal(seeing, request, REMOTE))
    assert site.connections == 0
