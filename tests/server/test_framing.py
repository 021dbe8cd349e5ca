"""How a request is wrapped: chunks, trailers, wishes for other protocols, and many headers.

A real server with a key, which nobody here has to know to do harm.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.depth import often, one_in

from .server_process import FEW, PATIENCE, Server, serving

CHAT = "/v1/chat/completions"
KEY = "a-key"
KNOWN = f"authorization: Bearer {KEY}\r\n".encode()
CHUNKED = b"transfer-encoding: chunked\r\n"
MORE = 96 << 20  # than any body may be, and what systems keep of it
BODY = json.dumps(
    {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "temperature": 0}
).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--api-key", KEY, *FEW) as server:
        yield server


def head(*lines: bytes, path: str = CHAT) -> bytes:
    start = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    return start.encode() + b"".join(lines) + b"\r\n"


def chunks(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 20.0)


def reply(sock: socket.socket) -> tuple[int, bytes]:
    """Status and body of the next reply that has a length."""
    with sock.makefile("rb") as file:
        status = int(file.readline().split()[1])
        size = 0
        while line := file.readline().strip():
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        return status, file.read(size)


def answer(server: Server, *sent: bytes) -> tuple[int, bytes]:
    with connected(server) as sock:
        for piece in sent:
            sock.sendall(piece)
            time.sleep(0.05)  # so that they come as pieces
        return reply(sock)


def resident(server: Server) -> int:
    """Bytes of the front process."""
    told = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(server.process.pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(told.stdout) << 10


def pour(server: Server, first: bytes, piece: bytes, most: int) -> tuple[int, int, float]:
    """Send without end; how much was taken, the front's growth, and the slowest /health beside.

    A server that does not refuse takes all of `most` bytes.
    """
    before, slowest, over = resident(server), 0.0, threading.Event()

    def ask() -> None:
        nonlocal slowest
        while not over.is_set():
            start = time.monotonic()
            assert server.health() == 200
            slowest = max(slowest, time.monotonic() - start)
            time.sleep(0.02)

    asking = threading.Thread(target=ask)
    asking.start()
    taken = 0
    with connected(server) as sock:
        try:
            sock.sendall(first)
            while taken < most:
                sock.sendall(piece)
                taken += len(piece)
        except OSError:
            pass
    over.set()
    asking.join()
    return taken, resident(server) - before, slowest


# -- chunks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", often([b"", KNOWN], b""), ids=["stranger", "known"])
def test_one_byte_chunks_without_end_are_refused_and_nobody_waits(
    server: Server, known: bytes
) -> None:
    """The connection ends, memory stays, and others are answered meanwhile. B67."""
    piece = b"1\r\n \r\n" * 8192
    taken, grown, slowest = pour(server, head(known, CHUNKED), piece, MORE)
    assert taken < MORE
    assert grown < 64 << 20
    assert slowest < 1.0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc tells processor time")
@pytest.mark.parametrize("known", [b"", KNOWN], ids=["stranger", "known"])
def test_one_byte_chunks_cost_the_front_next_to_nothing(server: Server, known: bytes) -> None:
    """24 MB of them once took 2.5 s. B67."""

    def spent() -> float:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = spent()
    with connected(server) as sock, contextlib.suppress(OSError):
        sock.sendall(head(known, CHUNKED))
        for _ in range(512):
            sock.sendall(b"1\r\n \r\n" * 8192)
    assert server.health() == 200
    assert spent() - before < 1.0


def test_one_byte_chunks_are_answered_with_a_reason(server: Server) -> None:
    with connected(server) as sock:
        sock.sendall(head(KNOWN, CHUNKED) + b"1\r\n \r\n" * 20_000)
        status, body = reply(sock)
    assert (status, json.loads(body)["error"]["code"]) == (400, "excessive_framing")


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_small_bodies_may_come_in_chunks_of_any_size(server: Server, size: int) -> None:
    """Control: what is refused is their number."""
    status, _ = answer(server, head(KNOWN, CHUNKED), chunks(BODY, size) + b"0\r\n\r\n")
    assert status == 200


def test_a_large_body_may_come_in_chunks_of_a_usual_size(server: Server) -> None:
    """Control: the same bytes that one-byte chunks would have been refused for."""
    wrapped = chunks(b" " * 2_000_000 + BODY, 128) + b"0\r\n\r\n"
    status, _ = answer(server, head(KNOWN, CHUNKED) + wrapped)
    assert status == 200


def test_chunk_extensions_have_a_limit(server: Server) -> None:
    piece = b"1;" + b"x" * 4096
    taken, grown, _ = pour(server, head(KNOWN, CHUNKED), piece, MORE)
    assert taken < MORE
    assert grown < 64 << 20


# -- trailers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [b"", KNOWN], ids=["stranger", "known"])
@pytest.mark.parametrize("lines", [True, False], ids=["many", "one"])
def test_trailers_without_end_are_not_kept(server: Server, known: bytes, lines: bool) -> None:
    """The connection ends, memory stays, and others are answered meanwhile. B67."""
    piece = b"".join(b"x%d: %s\r\n" % (at, b"y" * 40) for at in range(1000))
    first = head(known, CHUNKED) + chunks(BODY, 4096) + b"0\r\n"
    taken, grown, slowest = pour(server, first, piece if lines else b"y" * 65536, MORE)
    assert taken < MORE
    assert grown < 64 << 20
    assert slowest < 1.0


def test_a_key_in_a_trailer_opens_nothing(server: Server) -> None:
    wrapped = chunks(BODY, 4096)
    assert answer(server, head(CHUNKED) + wrapped + b"0\r\n" + KNOWN + b"\r\n")[0] == 401
    # Control: where it belongs.
    assert answer(server, head(KNOWN, CHUNKED) + wrapped + b"0\r\n\r\n")[0] == 200


@pytest.mark.parametrize(
    "trailer",
    [b"host: evil.example\r\n", b"x: y\r\n", b"connection: upgrade\r\nupgrade: h2c\r\n"],
    ids=["host", "any", "upgrade"],
)
def test_trailers_change_nothing(server: Server, trailer: bytes) -> None:
    sent = head(KNOWN, CHUNKED) + chunks(BODY, 4096) + b"0\r\n" + trailer + b"\r\n"
    with connected(server) as sock:
        for _ in range(2):  # and the connection goes on
            sock.sendall(sent)
            assert reply(sock)[0] == 200


# -- other protocols ---------------------------------------------------------------------------

H2C = (
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
    b"http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
)
LENGTH = b"content-length: %d\r\n" % len(BODY)


@pytest.mark.parametrize("apart", one_in(2, [True, False]))
@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize("wish", [H2C, b"connection: upgrade\r\nupgrade: websocket\r\n"])
def test_a_wish_for_another_protocol_is_ignored_and_the_body_is_read(
    server: Server, wish: bytes, chunked: bool, apart: bool
) -> None:
    body = chunks(BODY, 4096) + b"0\r\n\r\n" if chunked else BODY
    first = head(KNOWN, wish, CHUNKED if chunked else LENGTH)
    with connected(server) as sock:
        for _ in range(2):  # and the connection goes on
            for piece in [first, body] if apart else [first + body]:
                sock.sendall(piece)
                time.sleep(0.05)
            status, said = reply(sock)
            assert (status, b"choices" in said) == (200, True), said


def test_a_wish_for_a_websocket_is_declined_with_a_426(server: Server) -> None:
    sent = head(KNOWN, b"connection: Upgrade\r\nupgrade: websocket\r\n", path="/v1/responses")
    with connected(server) as sock:
        for _ in range(2):
            sock.sendall(sent.replace(b"POST", b"GET"))
            assert reply(sock)[0] == 426


def test_a_tunnel_is_no_request(server: Server) -> None:
    assert answer(server, b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n")[0] == 400


def _alone(*command: str, folder: Path) -> str:
    """A client of somebody else's, with nothing of ours around it."""
    ran = subprocess.run(
        command,
        env={"HOME": str(folder), "PATH": os.defpath},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_that_would_like_http2(server: Server, tmp_path: Path) -> None:
    if "HTTP2" not in _alone("curl", "--version", folder=tmp_path):
        pytest.skip("this curl has no HTTP/2")
    url = f"{server.url}{CHAT}"
    header = f"authorization: Bearer {KEY}"
    options = ["--http2", "-sS", "-H", header, "-H", "content-type: application/json"]
    said = _alone("curl", *options, "-d", BODY.decode(), url, folder=tmp_path)
    assert json.loads(said)["choices"]


_JAVA = """
import java.net.URI;
import java.net.http.*;

public class Ask {
    public static void main(String[] given) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(given[0]))
            .header("authorization", "Bearer " + given[1])
            .header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(given[2])).build();
        HttpClient client = HttpClient.newHttpClient();
        for (int at = 0; at < 2; at++) {
            System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
        }
    }
}
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no JDK")
def test_java_with_its_defaults(server: Server, tmp_path: Path) -> None:
    """Its client asks for HTTP/2 with the first request."""
    (tmp_path / "Ask.java").write_text(_JAVA)
    java = ("java", "-XX:TieredStopAtLevel=1", "Ask.java")
    said = _alone(*java, f"{server.url}{CHAT}", KEY, BODY.decode(), folder=tmp_path)
    assert [bool(json.loads(line)["choices"]) for line in said.splitlines()] == [True, True]


# -- bodies that do not end ----------------------------------------------------------------------


@pytest.mark.long
def test_many_large_bodies_that_do_not_end_leave_the_front_its_memory(server: Server) -> None:
    """Another request is answered beside nine of them. B67."""
    before = resident(server)
    piece = b" " * (1 << 20)
    with contextlib.ExitStack() as stack:
        for _ in range(9):
            sock = stack.enter_context(connected(server))
            with contextlib.suppress(OSError):
                sock.sendall(head(KNOWN, b"content-length: %d\r\n" % (50 << 20)))
                for _ in range(49):
                    sock.sendall(piece)
        assert resident(server) - before < 340 << 20
        assert answer(server, head(KNOWN, LENGTH) + BODY)[0] == 200


# -- headers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "status"), [(200, 200), (2000, 431)])
def test_headers_have_a_number(server: Server, count: int, status: int) -> None:
    many = b"a:\r\n" * count
    assert answer(server, head(KNOWN, LENGTH, many) + BODY)[0] == status


@pytest.mark.parametrize(
    "lines",
    [
        b"x: y\r\n  folded\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"content-length: 5\r\ncontent-length: 6\r\n",
        b"content-length: -1\r\n",
        b"content-length: 0x5\r\n",
        b"transfer-encoding: gzip\r\n",
        b"transfer-encoding: chunked, gzip\r\n",
        b"x\x00: y\r\n",
        b"x : y\r\n",
    ],
    ids=lambda it: str(it[:30]),
)
def test_headers_that_two_servers_could_read_in_two_ways_are_refused(
    server: Server, lines: bytes
) -> None:
    assert answer(server, head(KNOWN, lines) + BODY)[0] == 400
