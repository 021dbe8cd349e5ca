"""Fetching what a client points at: from the public internet, whole and in time, or not at all.

Sites here are real, on loopback, and reached only because the test says that it is public.
"""

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bushel.chat.media.fetch import MOST_REDIRECTS, Fetcher, look_up
from bushel.chat.media.media_source import UnusableMedia
from tests.chat.web_site import Say, Site, answer, open_site, redirect, trusting
from tests.depth import one_in

BODY = b"a picture" * 1000
SECONDS = 20.0  # more than any of these takes


@pytest.fixture
def site() -> Iterator[Site]:
    with open_site() as site:
        site.pages["/a.png"] = answer(BODY)
        yield site


@pytest.fixture
def secure() -> Iterator[Site]:
    with open_site(secure=True) as site:
        site.pages["/a.png"] = answer(BODY)
        yield site


def here(address: str) -> bool:
    return address == "127.0.0.1"


def named(host: str, port: int) -> Sequence[str]:
    """A name server that knows one site, and leaves addresses alone."""
    return ["127.0.0.1"] if host == "pictures.example" else look_up(host, port)


def opened(**more: Any) -> Fetcher:
    return Fetcher(**{"allowed": here, "lookup": named, **more})


def refusal(fetcher: Fetcher, url: str, seconds: float = SECONDS) -> str:
    with pytest.raises(UnusableMedia) as caught:
        fetcher.fetch(url, seconds)
    said = str(caught.value)
    for secret in ("127.0.0.1", "0x", "Errno", "/a.png"):
        assert secret not in said
    return said


# -- where to ---------------------------------------------------------------------------------


def test_a_public_picture_is_fetched(site: Site) -> None:
    assert opened().fetch(site.url("/a.png#part"), SECONDS) == BODY
    assert opened().fetch(site.url("/a.png", "pictures.example"), SECONDS) == BODY
    assert f"Host: pictures.example:{site.port}\r\n" in site.requests[-1]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1", "0x7f000001", "2130706433",
     "0.0.0.0", "[::1]", "[::]"],
)  # fmt: skip
def test_this_machine_is_never_asked(site: Site, host: str) -> None:
    refusal(Fetcher(), site.url("/a.png", host))
    assert site.connections == 0


def test_a_name_that_leads_inside_is_not_asked(site: Site) -> None:
    fetcher = Fetcher(lookup=named)
    assert "public" in refusal(fetcher, site.url("/a.png", "pictures.example"))
    assert site.connections == 0


def test_one_private_address_among_public_ones_is_enough(site: Site) -> None:
    both = opened(lookup=lambda *_: ["127.0.0.1", "10.0.0.1"])
    assert "public" in refusal(both, site.url("/a.png", "pictures.example"))
    assert site.connections == 0
    one = opened(lookup=lambda *_: ["127.0.0.1"])  # a control
    assert one.fetch(site.url("/a.png", "pictures.example"), SECONDS) == BODY


def test_a_name_is_looked_up_once_and_the_answer_is_where_it_goes(site: Site) -> None:
    """A name server that changes its mind between the check and the connection (rebinding)."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]
    fetcher = opened(lookup=lambda *_: answers.pop(0))
    assert fetcher.fetch(site.url("/a.png", "pictures.example"), SECONDS) == BODY
    assert len(answers) == 1


class NameServer:
    """Stands where the system's does, answers a name by each of some addresses in turn, and
    remembers what it was asked. Addresses need no name server.
    """

    def __init__(self, *answers: str):
        self._answers = list(answers)
        self._real = socket.getaddrinfo
        self.names: list[str] = []

    def __call__(self, host: str, port: int, *rest: Any, **more: Any) -> Any:
        if host == "pictures.example":
            self.names.append(host)
            host = self._answers.pop(0)
        return self._real(host, port, *rest, **more)


def test_the_system_is_asked_for_a_name_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again by what connects: a second answer would be another place than was checked."""
    monkeypatch.setattr(socket, "getaddrinfo", server := NameServer("127.0.0.1", "127.0.0.9"))
    url = site.url("/a.png", "pictures.example")
    assert opened(lookup=look_up).fetch(url, SECONDS) == BODY
    assert server.names == ["pictures.example"]
    # A control: a client that checks first and connects by name goes where it did not look.
    assert look_up("pictures.example", 80) == ["127.0.0.9"]


def test_a_name_that_moves_inside_before_its_redirect_is_not_followed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rebinding between two requests to the same name."""
    monkeypatch.setattr(socket, "getaddrinfo", server := NameServer("127.0.0.1", "127.0.0.9"))
    site.pages["/start"] = redirect("/a.png")
    url = site.url("/start", "pictures.example")
    assert "public" in refusal(opened(lookup=look_up), url)
    assert (len(server.names), site.connections) == (2, 1)


def test_an_unknown_name_and_a_private_one_get_the_same_words(site: Site) -> None:
    def unknown(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror("no such name")

    url = site.url("/a.png", "inside.example")
    private = Fetcher(lookup=lambda *_: ["10.0.0.1"])
    assert refusal(Fetcher(lookup=unknown), url) == refusal(private, url)


def test_only_the_domains_that_are_listed_are_asked(site: Site) -> None:
    fetcher = opened(domains=("pictures.example",))
    assert fetcher.fetch(site.url("/a.png", "pictures.example"), SECONDS) == BODY
    assert "host" in refusal(fetcher, site.url("/a.png"))
    assert site.connections == 1


def test_the_second_address_is_tried_when_the_first_refuses(site: Site) -> None:
    fetcher = Fetcher(allowed=lambda _: True, lookup=lambda *_: ["::1", "127.0.0.1"])
    assert fetcher.fetch(site.url("/a.png", "pictures.example"), SECONDS) == BODY


# -- redirects --------------------------------------------------------------------------------


def test_redirects_are_followed_to_the_picture(site: Site) -> None:
    site.pages["/old"] = redirect("/older?x")
    site.pages["/older?x"] = redirect(site.url("/a.png", "pictures.example"), "308 Moved")
    assert opened().fetch(site.url("/old"), SECONDS) == BODY


@pytest.mark.parametrize("host", ["localhost", "inside.example", "127.0.0.1\\@1.1.1.1",
                                  "1.1.1.1@127.0.0.1", "0x7f.1"])  # fmt: skip
def test_every_redirect_is_checked_again(site: Site, host: str) -> None:
    """The first site is public; where it sends the reader is not."""
    site.pages["/start"] = redirect(site.url("/a.png", host))
    names = {"pictures.example": "127.0.0.1", "localhost": "127.0.0.3"}
    fetcher = opened(lookup=lambda host, _: [names.get(host, "10.0.0.1")])
    refusal(fetcher, site.url("/start", "pictures.example"))
    assert site.connections == 1


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://127.0.0.1/", "", "http://", "gopher://127.0.0.1:70/_x",
     "data:image/png;base64,AAAA"],
)  # fmt: skip
def test_a_redirect_stays_on_the_web(site: Site, location: str) -> None:
    site.pages["/start"] = redirect(location)
    refusal(opened(), site.url("/start"))


def test_a_redirect_outside_the_listed_domains_is_refused(site: Site) -> None:
    site.pages["/start"] = redirect(site.url("/a.png"))
    fetcher = opened(domains=("pictures.example",))
    assert "host" in refusal(fetcher, site.url("/start", "pictures.example"))
    assert site.connections == 1


def test_redirects_end(site: Site) -> None:
    for at in range(MOST_REDIRECTS + 1):
        site.pages[f"/{at}"] = redirect(f"/{at + 1}")
    site.pages[f"/{MOST_REDIRECTS + 1}"] = answer(BODY)
    assert "times" in refusal(opened(), site.url("/0"))
    assert opened().fetch(site.url("/1"), SECONDS) == BODY


# -- how much, how long -----------------------------------------------------------------------


def chunked(*pieces: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return head + body


def endless(head: bytes, again: bytes, pause: float = 0.0) -> Say:
    """Until the client hangs up."""

    def say(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(again)
            time.sleep(pause)

    return say


def test_a_body_in_chunks_or_without_a_length_is_read(site: Site) -> None:
    site.pages["/chunks"] = chunked(BODY[:10], BODY[10:])
    site.pages["/open"] = b"HTTP/1.0 200 OK\r\n\r\n" + BODY
    assert opened().fetch(site.url("/chunks"), SECONDS) == BODY
    assert opened().fetch(site.url("/open"), SECONDS) == BODY


def test_a_body_is_read_up_to_the_limit_and_no_further(site: Site) -> None:
    site.pages["/chunks"] = chunked(BODY)
    site.pages["/open"] = b"HTTP/1.0 200 OK\r\n\r\n" + BODY
    for path in ("/a.png", "/chunks", "/open"):
        assert opened(most_bytes=len(BODY)).fetch(site.url(path), SECONDS) == BODY
        assert "larger" in refusal(opened(most_bytes=len(BODY) - 1), site.url(path))


def test_a_length_beyond_the_limit_is_refused_before_any_of_it_comes(site: Site) -> None:
    released = threading.Event()

    def promise(connection: socket.socket) -> None:
        connection.sendall(OK + b"Content-Length: 1001\r\n\r\n")
        released.wait(30)

    site.pages["/"] = promise
    assert "larger" in refusal(opened(most_bytes=1000), site.url("/"), seconds=5)
    released.set()


OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "body": (OK + b"\r\n", b"x" * 65536),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"8000\r\n" + b"x" * 32768 + b"\r\n"),
    "chunk of size -1": (OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"x" * 65536),
    "headers": (OK, b"X-A: " + b"x" * 60000 + b"\r\n"),
    "one header": (OK + b"X-A: ", b"x" * 65536),
    "trailers": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
        b"X-A: " + b"x" * 60000 + b"\r\n",
    ),
    "promises": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_answer_ends_at_the_limit(site: Site, case: str) -> None:
    """CVE-2026-0599."""
    site.pages["/"] = endless(*ENDLESS[case])
    assert "within" not in refusal(opened(most_bytes=100_000), site.url("/"))


SLOW: dict[str, tuple[bytes, bytes]] = {
    "silence": (b"", b""),
    "status": (b"HTTP/1.1 2", b"0"),
    "header": (OK + b"X-A: ", b"x"),
    "headers": (OK, b"X: x\r\n"),
    "promises": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (OK + b"Content-Length: 1000\r\n\r\n", b"x"),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
}


@pytest.mark.parametrize("case", one_in(2, SLOW))
def test_a_drip_of_bytes_does_not_prolong_the_limit(site: Site, case: str) -> None:
    """Each byte comes well before a socket's own limit; together they would take minutes."""
    site.pages["/"] = endless(*SLOW[case], pause=0.02)
    assert "within 0.3 s" in refusal(opened(), site.url("/"), seconds=0.3)


def test_redirects_share_one_limit(site: Site) -> None:
    """Each of them comes in time; with a limit for each, there would be too many redirects."""

    def slowly(connection: socket.socket) -> None:
        time.sleep(0.2)
        connection.sendall(redirect("/again"))

    site.pages["/again"] = slowly
    assert "within 0.5 s" in refusal(opened(), site.url("/again"), seconds=0.5)


def test_a_silent_name_server_is_not_waited_for(site: Site) -> None:
    released, answered = threading.Event(), []

    def silent(host: str, port: int) -> Sequence[str]:
        released.wait(30)
        answered.append(host)
        return ["127.0.0.1"]

    fetcher = opened(lookup=silent)
    assert "within 0.1 s" in refusal(fetcher, site.url("/a.png", "pictures.example"), seconds=0.1)
    assert (answered, site.connections) == ([], 0)
    released.set()


# -- answers ----------------------------------------------------------------------------------

BAD_ANSWERS: dict[str, bytes] = {
    "missing": answer(b"no", "404 Not Found"),
    "forbidden": answer(b"no", "403 Forbidden"),
    "failing": answer(b"no", "500 Oops"),
    "partial": answer(BODY, "206 Partial Content"),
    "nothing": answer(b"", "204 No Content"),
    "packed": answer(b"\x1f\x8b", Content_Encoding="gzip"),
    "packed twice": answer(b"\x1f\x8b", Content_Encoding="identity, gzip"),
    "packed in transfer": answer(b"\x1f\x8b", Transfer_Encoding="gzip, chunked"),
    "cut off": answer(BODY, Content_Length=str(len(BODY) + 1)),
    "cut off in a chunk": chunked(BODY)[:-50],
    "no chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
    "negative chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc",
    "no http": b"hello\r\n\r\n",
    "old http": BODY,
    "tls": b"\x16\x03\x01\x02\x00\x01",
    "odd status": b"HTTP/1.1 99999 x\r\n\r\n",
    "empty": b"",
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_an_answer_that_is_not_a_whole_picture_is_refused(site: Site, case: str) -> None:
    site.pages["/"] = BAD_ANSWERS[case]
    refusal(opened(), site.url("/"))


def test_nothing_is_sent_but_the_question(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cookies from one answer to the next, no proxy, no credentials of the environment."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    site.pages["/start"] = answer(b"", "302 Found", Location="/a.png", Set_Cookie="a=b; Path=/")
    assert opened().fetch(site.url("/start", "pictures.example"), SECONDS) == BODY
    for head in site.requests:
        lines = head.strip().split("\r\n")
        assert sorted(line.split(":")[0] for line in lines[1:]) == [
            "Accept-Encoding", "Host", "User-Agent"
        ]  # fmt: skip
        assert "Accept-Encoding: identity" in lines


# -- https ------------------------------------------------------------------------------------


def test_a_certificate_is_checked_against_the_name(secure: Site) -> None:
    fetcher = opened(trust=trusting(), lookup=lambda *_: ["127.0.0.1"])
    assert fetcher.fetch(secure.url("/a.png", "pictures.example", "https"), SECONDS) == BODY
    assert "prove" in refusal(fetcher, secure.url("/a.png", "other.example", "https"))
    assert "prove" in refusal(fetcher, secure.url("/a.png", "127.0.0.1", "https"))
    assert len(secure.requests) == 1


def test_a_certificate_that_nobody_trusts_is_refused(secure: Site) -> None:
    assert "prove" in refusal(opened(), secure.url("/a.png", "pictures.example", "https"))
    assert secure.requests == []


def test_https_does_not_lead_to_http(site: Site, secure: Site) -> None:
    fetcher = opened(trust=trusting())
    secure.pages["/down"] = redirect(site.url("/a.png", "pictures.example"))
    secure.pages["/same"] = redirect("/a.png")
    site.pages["/up"] = redirect(secure.url("/a.png", "pictures.example", "https"))
    assert "https to http" in refusal(fetcher, secure.url("/down", "pictures.example", "https"))
    assert site.connections == 0
    assert fetcher.fetch(secure.url("/same", "pictures.example", "https"), SECONDS) == BODY
    assert fetcher.fetch(site.url("/up", "pictures.example"), SECONDS) == BODY


def test_a_slow_handshake_does_not_prolong_the_limit(site: Site) -> None:
    """The site waits for a head that never comes, and says nothing."""
    fetcher = opened(trust=trusting())
    url = site.url("/a.png", "pictures.example", "https")
    assert "within 0.2 s" in refusal(fetcher, url, seconds=0.2)
