"""One GET of a public http or https URL that a client chose, for a process that may be killed.

The URL is read by one strict parser, and only what that parser understood is used. The name is
looked up once, every address found must be public, and the connection goes to one of exactly
these, so that a second answer of the name server cannot change the goal. Each redirect goes
through all of it again. Any port is allowed: what is protected is this machine and its network,
and neither has a public address behind which only a port would hide it.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Any
from urllib.parse import quote, urljoin

from bushel.chat.media.media_source import UnusableMedia, too_large
from bushel.chat.media.public_address import is_public

MOST_REDIRECTS = 3
_PIECE = 1 << 16
_OVERHEAD = 1 << 20  # headers, and the frames of chunks
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_HOST_AND_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@]+)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_QUAD = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

Lookup = Callable[[str, int], Sequence[str]]
Allowed = Callable[[str], bool]


@dataclass(frozen=True)
class Target:
    """Where a URL leads. `host` is ASCII in lower case, without brackets or a final dot."""

    scheme: str
    host: str
    port: int
    path: str  # with the query, as it is sent

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse(url: str) -> Target:
    """Raises UnusableMedia for whatever two readers might understand in two ways."""
    if not url.isprintable() or " " in url or "\\" in url:
        raise UnusableMedia("Its URL holds spaces, backslashes or characters that cannot be seen.")
    whole = _URL.fullmatch(url)
    if whole is None:
        raise UnusableMedia("Its URL is not one of http or https.")
    scheme, authority, path = whole[1].lower(), whole[2], whole[3]
    if "@" in authority:
        raise UnusableMedia("Its URL holds a user name or a password, which are never sent.")
    place = _HOST_AND_PORT.fullmatch(authority)
    port = int(place[2]) if place and place[2] else _PORTS[scheme]
    if place is None or not 0 < port < 65536:
        raise UnusableMedia("Its URL has no valid host and port.")
    if not path.startswith("/"):
        path = "/" + path
    return Target(scheme, _host(place[1]), port, quote(path, safe="/?&=+$,;:@!*'()~%[]|"))


def _host(written: str) -> str:
    if written.startswith("["):
        try:
            return str(IPv6Address(written[1:-1]))
        except AddressValueError:
            raise UnusableMedia("Its URL has no valid host and port.") from None
    try:
        # Wide digits and dots become plain ones here, before anything is decided by them.
        host = written.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        raise UnusableMedia("Its URL has no valid host and port.") from None
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise UnusableMedia("Its URL has no valid host and port.")
    # 127.1, 0x7f.1 and 2130706433 are addresses to some and names to others.
    if _NUMBER.fullmatch(labels[-1]) and not _QUAD.fullmatch(host):
        raise UnusableMedia("Its URL writes an address in an unusual way.")
    return host


def in_domains(host: str, domains: Sequence[str]) -> bool:
    """Exactly one of them, or below `*.example.com`; none given means that all are."""
    if not domains:
        return True
    for domain in domains:
        wild = domain.startswith("*.")
        name = _host(domain[2:] if wild else domain)
        if host.endswith("." + name) if wild else host == name:
            return True
    return False


def look_up(host: str, port: int) -> list[str]:
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


@dataclass(frozen=True)
class Fetcher:
    """The rules of a fetch. `allowed` and `lookup` are replaced where the goal is known."""

    domains: Sequence[str] = ()
    most_bytes: int = 64 << 20
    allowed: Allowed = is_public
    lookup: Lookup = look_up
    trust: ssl.SSLContext | None = None  # None: what the system trusts

    def fetch(self, url: str, seconds: float) -> bytes:
        """The body of the answer, which comes whole within `seconds` or not at all."""
        deadline = _Deadline(seconds)
        target = parse(url)
        try:
            for _ in range(MOST_REDIRECTS + 1):
                answer = self._ask(target, deadline)
                if isinstance(answer, bytes):
                    return answer
                target = answer
        except TimeoutError:
            raise UnusableMedia(f"It could not be fetched within {seconds:g} s.") from None
        raise UnusableMedia(f"Its URL redirects more than {MOST_REDIRECTS} times.")

    def _ask(self, target: Target, deadline: _Deadline) -> bytes | Target:
        """What it answers with: a body, or where else to ask."""
        if not in_domains(target.host, self.domains):
            raise UnusableMedia("Its host is not one that media may come from.")
        addresses = self._addresses(target, deadline)
        most = 2 * self.most_bytes + _OVERHEAD
        connection = _Pinned(target, addresses, deadline, self.trust, most)
        try:
            connection.request("GET", target.path, headers={"User-Agent": "bushel"})
            answer = connection.getresponse()
            if answer.status in _REDIRECTS:
                return _next(target, answer.getheader("Location") or "")
            return self._body(answer)
        except TimeoutError:
            raise
        except ssl.SSLError:
            raise UnusableMedia("Its host could not prove who it is.") from None
        except (OSError, ValueError, http.client.HTTPException):
            raise UnusableMedia("Its host could not be reached, or broke off its answer.") from None
        finally:
            connection.hang_up()

    def _addresses(self, target: Target, deadline: _Deadline) -> Sequence[str]:
        try:
            addresses = deadline.wait(lambda: self.lookup(target.host, target.port))
        except TimeoutError:
            raise
        except (OSError, UnicodeError):
            addresses = ()
        # The same words whether or not there is such a name, which may be known only inside.
        if not addresses or not all(self.allowed(address) for address in addresses):
            raise UnusableMedia("The URL's host must resolve to public addresses only.")
        return list(addresses)

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        if answer.status != 200:
            raise UnusableMedia(f"Its host answered with status {answer.status}.")
        packed = answer.getheader("Content-Encoding", "identity").strip().lower()
        framed = answer.getheader("Transfer-Encoding", "chunked").strip().lower()
        if packed != "identity" or framed != "chunked":
            raise UnusableMedia("Its host answered in an encoding that was not asked for.")
        if answer.length is not None and answer.length > self.most_bytes:
            raise too_large(self.most_bytes)
        body = bytearray()
        while piece := answer.read(_PIECE):
            body += piece
            if len(body) > self.most_bytes:
                raise too_large(self.most_bytes)
        if answer.length:  # so many are missing
            raise http.client.IncompleteRead(b"")
        return bytes(body)


def _next(target: Target, location: str) -> Target:
    if not location:
        raise UnusableMedia("Its URL redirects to nowhere.")
    following = parse(urljoin(target.url, location))
    if target.scheme == "https" and following.scheme == "http":
        raise UnusableMedia("Its URL redirects from https to http.")
    return following


class _Deadline:
    """The end of a fetch, whatever it is busy with."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def wait(self, ask: Callable[[], Any]) -> Any:
        """The result of a call that knows no time limit, such as asking a name server."""
        results: queue.Queue[tuple[Any, Exception | None]] = queue.Queue()

        def run() -> None:
            try:
                results.put((ask(), None))
            except Exception as error:
                results.put((None, error))

        threading.Thread(target=run, daemon=True).start()
        try:
            result, error = results.get(timeout=self.left())
        except queue.Empty:
            raise TimeoutError from None
        if error is not None:
            raise error
        return result


class _Pinned(http.client.HTTPConnection):
    """To one of `addresses`, in the name of the target's host.

    It sends what is given and what HTTP needs: no cookies, no credentials, through no proxy.
    """

    def __init__(
        self,
        target: Target,
        addresses: Sequence[str],
        deadline: _Deadline,
        trust: ssl.SSLContext | None,
        most: int,  # bytes that are read of its answer, whatever they say
    ):
        super().__init__(target.host, target.port)
        self.default_port = _PORTS[target.scheme]  # left out of the Host header
        self._target, self._addresses = target, addresses
        self._deadline, self._trust, self._most = deadline, trust, most
        self._raw: socket.socket | None = None

    def connect(self) -> None:
        self._raw = self._reach()
        self._raw.settimeout(self._deadline.left())
        if self._target.scheme == "https":
            trust = self._trust or ssl.create_default_context()
            self._raw = trust.wrap_socket(self._raw, server_hostname=self._target.host)
        self.sock: Any = _Timed(self._raw, self._deadline, self._most)

    def _reach(self) -> socket.socket:
        for at, address in enumerate(self._addresses):
            # One that never answers leaves time for those after it.
            wait = self._deadline.left() / (len(self._addresses) - at)
            with contextlib.suppress(OSError):
                return socket.create_connection((address, self._target.port), timeout=wait)
        self._deadline.left()
        raise ConnectionError

    def hang_up(self) -> None:
        # Not `close`, which http.client calls while the answer is still being read.
        if self._raw is not None:
            self._raw.close()


class _Timed:
    """What http.client needs of a socket."""

    def __init__(self, sock: socket.socket, deadline: _Deadline, most: int):
        self._sock, self._deadline, self._most = sock, deadline, most

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reads(self._sock, self._deadline, self._most), _PIECE)

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._deadline.left())
        self._sock.sendall(data)

    def close(self) -> None:
        pass


class _Reads(io.RawIOBase):
    """All reads together have one time limit and one size.

    A socket's own time limit is for one read: a server that sends a byte a second would never
    meet it. And http.client reads a chunk of size -1 to its end, wherever that is.
    """

    def __init__(self, sock: socket.socket, deadline: _Deadline, most: int):
        self._sock, self._deadline, self._left = sock, deadline, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(self._deadline.left())
        count = self._sock.recv_into(buffer)
        self._left -= count
        if self._left < 0:
            raise http.client.HTTPException
        return count
