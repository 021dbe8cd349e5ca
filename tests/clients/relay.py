"""A loopback port that passes bytes to a server and back unchanged, and remembers them.

So a client speaks with the real server, and a test can still read what both said.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import h11


@dataclass
class Exchange:
    """One request and its answer; status 0: none came. began: by a monotonic clock."""

    method: str
    target: str
    body: bytes
    began: float
    status: int = 0
    reply: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def text(self) -> str:
        """The body as its strings read, whatever escapes it was sent with."""
        try:
            return json.dumps(json.loads(self.body), ensure_ascii=False)
        except ValueError:
            return self.body.decode(errors="replace")


@dataclass
class _Wire:
    """The bytes of one connection, each way, and when those up to a place were sent."""

    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    times: list[tuple[int, float]] = field(default_factory=list)

    def when(self, place: int) -> float:
        return next(time for end, time in self.times if end > place)


class Relay:
    def __init__(self, port: int):
        self._target = port
        self._wires: list[_Wire] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    @property
    def exchanges(self) -> list[Exchange]:
        """Everything asked so far, in that order."""
        found = [it for wire in list(self._wires) for it in _parsed(wire)]
        return sorted(found, key=lambda it: it.began)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                wire = _Wire()
                self._wires.append(wire)
                for way in (
                    (client, server, wire.sent, wire.times),
                    (server, client, wire.received, []),
                ):
                    threading.Thread(target=_pump, args=way, daemon=True).start()


def _pump(
    source: socket.socket, sink: socket.socket, log: bytearray, times: list[tuple[int, float]]
) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            times.append((len(log) + len(data), time.monotonic()))
            log += data
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _parsed(wire: _Wire) -> Iterator[Exchange]:
    sent = bytes(wire.sent)
    client, server = h11.Connection(h11.SERVER), h11.Connection(h11.CLIENT)
    client.receive_data(sent)
    server.receive_data(bytes(wire.received))
    place = 0
    while isinstance(request := client.next_event(), h11.Request):
        method, target = request.method.decode(), request.target.decode()
        found = Exchange(method, target, _body(client)[0], wire.when(place))
        place = len(sent) - len(client.trailing_data[0])
        # Each connection has one half of the talk; it is told the other for its own bookkeeping.
        headers = [("host", "-"), ("content-length", "0")]
        server.send(h11.Request(method=method, target=target, headers=headers))
        server.send(h11.EndOfMessage())
        answer = _next(server)
        if isinstance(answer, h11.Response):
            found.status = answer.status_code
            found.reply, whole = _body(server)
        else:
            whole = False
        yield found
        if not whole:
            return
        client.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
        client.send(h11.EndOfMessage())
        if h11.DONE not in (client.our_state, client.their_state):
            return
        try:
            client.start_next_cycle()
            server.start_next_cycle()
        except h11.LocalProtocolError:  # either side closed after this one
            return


def _next(side: h11.Connection) -> Any:
    while isinstance(event := side.next_event(), h11.InformationalResponse):
        pass
    return event


def _body(side: h11.Connection) -> tuple[bytes, bool]:
    """What follows a head, and whether it is complete."""
    found = bytearray()
    while True:
        try:
            event = side.next_event()
        except h11.RemoteProtocolError:
            return bytes(found), False
        if not isinstance(event, h11.Data):
            return bytes(found), isinstance(event, h11.EndOfMessage)
        found += event.data


@contextlib.contextmanager
def relaying(port: int) -> Iterator[Relay]:
    relay = Relay(port)
    try:
        yield relay
    finally:
        relay.close()
