"""A web site on this machine, on real sockets, that answers with exactly the bytes it is told."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CERTIFICATE = Path(__file__).with_name("web_site.pem")
Say = Callable[[socket.socket], None]


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; a header that is None is left out."""
    lines = {"Content-Length": str(len(body)), "Connection": "close"}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer(b"", status, Location=location)


class Site:
    """`pages` by path; `requests` are the heads of all that arrived, `connections` counts."""

    def __init__(self, context: ssl.SSLContext | None = None):
        self.pages: dict[str, bytes | Say] = {}
        self.requests: list[str] = []
        self.connections = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            # A client may hang up at any moment, and its connection's thread with it.
            threading.Thread(target=self._speak, args=(connection,), daemon=True).start()

    def _speak(self, connection: socket.socket) -> None:
        with suppress(OSError):
            connection.settimeout(20)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    if not (piece := connection.recv(4096)):
                        return
                    head += piece
                self.requests.append(head.decode())
                page = self.pages.get(head.split()[1].decode(), answer(b"", "404 Not Found"))
                if callable(page):
                    page(connection)
                else:
                    connection.sendall(page)


@contextmanager
def open_site(*, secure: bool = False) -> Iterator[Site]:
    context = None
    if secure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
    site = Site(context)
    try:
        yield site
    finally:
        site.close()


def trusting() -> ssl.SSLContext:
    """Trusts the site's certificate and no other."""
    return ssl.create_default_context(cafile=str(CERTIFICATE))
