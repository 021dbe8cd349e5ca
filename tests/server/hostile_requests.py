"""Hostile requests: how they are sent, what their answers must not tell, and who must not notice.

A case is a request and its answer, written as "400 invalid_json": a status and the error's code.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import struct
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import bushel
from tests.server.server_process import PATIENCE, Server

CHAT = "/v1/chat/completions"
KEY = "sesame"

# -- requests ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    """What a client library could send."""

    method: str
    path: str
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """Bytes on a connection."""

    data: bytes


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    @property
    def short(self) -> str:
        """The form that cases are written in."""
        if self.status < 400:
            return str(self.status)
        return f"{self.status} {json.loads(self.text)['error']['code']}"


def chat(content: Any = "Hello", **fields: Any) -> Sent:
    """A short reply to a message."""
    messages = [{"role": "user", "content": content}]
    return post(CHAT, {"messages": messages, "max_tokens": 2, **fields})


def post(path: str, body: Any, **headers: str) -> Sent:
    return post_bytes(path, json.dumps(body).encode(), **headers)


def post_bytes(path: str, content: bytes, **headers: str) -> Sent:
    return Sent("POST", path, content, {"content-type": "application/json", **headers})


def written(field: str, value: str, path: str = CHAT) -> Sent:
    """A field of a good request as some JSON, or what looks like it."""
    good = b'{"messages":[{"role":"user","content":"Hello"}],"prompt":"Hello","max_tokens":2,'
    return post_bytes(path, good + f'"{field}":{value}}}'.encode())


def head(*lines: str, path: str = CHAT) -> bytes:
    """The head of a POST that ends its connection, up to where more lines may follow."""
    first = (f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close")
    more = (f"Authorization: Bearer {KEY}", "Content-Type: application/json")
    return "".join(f"{line}\r\n" for line in (*first, *more, *lines)).encode()


def ask(server: Server, request: Sent | Raw) -> Answer:
    return _ask_raw(server, request.data) if isinstance(request, Raw) else _ask(server, request)


def _ask(server: Server, request: Sent) -> Answer:
    reply = server.http.request(
        request.method, request.path, content=request.content, headers=request.headers
    )
    headers = "".join(f"{name}: {value}\n" for name, value in reply.headers.items())
    assert leaks(headers) == []
    return Answer(reply.status_code, reply.text)


def _ask_raw(server: Server, data: bytes) -> Answer:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        got = bytearray()
        # It may refuse the rest, and end the connection when it has answered.
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(1 << 16):
                got += piece
    lines, _, text = bytes(got).partition(b"\r\n\r\n")
    assert lines, "no answer"
    assert leaks(lines.decode("latin-1")) == []
    return Answer(int(lines.split()[1]), text.decode())


# -- what no answer may tell -------------------------------------------------------------------

_PATHS = {str(Path(str(bushel.__file__)).parents[1]), sys.prefix, str(Path.home())} - {"/"}
_LEAKS = {
    "an address in memory": re.compile(r"\b0x[0-9a-fA-F]{6,}"),
    "a traceback": re.compile(r"Traceback|File \"|\bline \d+, in\b"),
    "a path": re.compile("|".join(map(re.escape, _PATHS)) + r"|site-packages|\w\.py\b"),
    "an object of Python": re.compile(r"<class |<[\w.]+ object|<function |<bound method "),
    "an exception's name": re.compile(r"\b[A-Z]\w+(?:Error|Exception|Iteration|Warning)\b"),
}


def leaks(text: str, *paths: str) -> list[str]:
    """What a text tells of the server's insides. `paths`: further ones that are its own."""
    found = [what for what, form in _LEAKS.items() if form.search(text)]
    return found + ["a path" for path in paths if path in text]


# -- others ------------------------------------------------------------------------------------


class Beside:
    """Someone who asks for the same stream again and again while other things happen."""

    def __init__(self, server: Server, tokens: int):
        body = {"messages": [{"role": "user", "content": "Tell me a story."}], "stream": True}
        self._sent = {**body, "temperature": 0, "ignore_eos": True, "max_tokens": tokens}
        self._server = server
        self._done = threading.Event()
        self.alone = self._stream()
        self.heard: list[str] = []
        self.problem: Exception | None = None
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Beside:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._thread.join(PATIENCE)

    def noticed(self) -> str | None:
        """What was not as it is alone, when all is over."""
        if self.problem is not None:
            return repr(self.problem)
        if not self.alone or not self.heard:
            return "nothing was heard"
        return next((f"{it!r}" for it in self.heard if it != self.alone), None)

    def _listen(self) -> None:
        try:
            while not self._done.is_set():
                self.heard.append(self._stream())
        except Exception as error:
            self.problem = error

    def _stream(self) -> str:
        """All of it, by name if it ends otherwise than it should."""
        http = self._server.http
        with httpx.stream(
            "POST",
            f"{self._server.url}{CHAT}",
            json=self._sent,
            headers=http.headers,
            timeout=PATIENCE,
        ) as reply:
            events = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
        *chunks, last = events
        assert last == "[DONE]", last
        choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
        assert choices[-1]["finish_reason"] == "length"
        return "".join(choice["delta"].get("content", "") for choice in choices)


class Listener:
    """A service of this machine that nobody outside should be able to reach."""

    def __init__(self) -> None:
        self.calls = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.calls += 1
                connection.close()


@contextlib.contextmanager
def dribbling(server: Server, count: int) -> Iterator[None]:
    """Clients that began a header or a body and say no more."""
    begun = (head()[:40], head("Content-Length: 1000") + b'\r\n{"messages":')
    with contextlib.ExitStack() as all_of_them:
        for at in range(count):
            connection = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
            all_of_them.enter_context(connection)
            connection.sendall(begun[at % 2])
        yield


# -- media -------------------------------------------------------------------------------------


def picture(url: str, *texts: str) -> list[dict[str, Any]]:
    """The parts of a message."""
    said = [{"type": "text", "text": text} for text in texts or ("What is it?",)]
    return [{"type": "image_url", "image_url": {"url": url}}, *said]


def film(url: str) -> list[dict[str, Any]]:
    return [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": "What?"}]


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def _part(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, pixels: bytes = b"", *parts: bytes) -> bytes:
    """A grey PNG whose header speaks of so many pixels, whatever there is of them."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    starts = range(0, len(pixels), max(width, 1))
    rows = b"".join(b"\0" + pixels[at : at + width] for at in starts)
    begin = b"\x89PNG\r\n\x1a\n" + _part(b"IHDR", header) + b"".join(parts)
    return begin + _part(b"IDAT", zlib.compress(rows)) + _part(b"IEND", b"")


def packed_text(name: bytes, size: int) -> bytes:
    """A part of a PNG that becomes a thousand times as large when it is read."""
    return _part(name, b"a\0\0" + zlib.compress(bytes(size), 9))


def gif(frames: int, width: int, height: int, pause: int = 1) -> bytes:
    """So many frames, of which each paints one pixel; a pause is in hundredths of a second."""
    begin = b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\0\0\0\0\0\xff\xff\xff"
    wait = b"\x21\xf9\x04\0" + struct.pack("<H", pause) + b"\0\0"
    frame = b"\x2c" + struct.pack("<HHHH", 0, 0, 1, 1) + b"\0\x02\x02\x44\x01\0"
    return begin + (wait + frame) * frames + b";"


def controls() -> list[str]:
    """What the tokenizer of the served model would read as commands."""
    path = Path(str(bushel.__file__)).parent / "tiny" / "tokenizer.json"
    found = json.loads(path.read_text())["added_tokens"]
    return [it["content"] for it in found if it["special"]]


def media_folder() -> tempfile.TemporaryDirectory[str]:
    """Below `media` are a picture and links to what is beside it: a secret, and all the rest."""
    folder = tempfile.TemporaryDirectory(prefix="bushel-hostile-")
    root = Path(folder.name)
    (root / "media").mkdir()
    (root / "secret.png").write_bytes(png(8, 8, bytes(64)))
    (root / "media" / "good.png").write_bytes(png(8, 8, bytes(64)))
    (root / "media" / "link.png").symlink_to(root / "secret.png")
    (root / "media" / "out").symlink_to("/")
    return folder
