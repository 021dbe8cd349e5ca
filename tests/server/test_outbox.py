"""What a child says does not wait for who reads it, and arrives as it was said (B61)."""

from __future__ import annotations

import socket
import threading
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.core.outbox import ROOM, Outbox, widen

PATIENCE = 60.0
STEP = b"a step of 32 rows".ljust(1873, b".")


def narrow() -> tuple[socket.socket, socket.socket]:
    """A pair as macOS makes them."""
    pair = socket.socketpair()
    for end in pair:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, 4 << 10)
    return pair


def read(end: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        parts += end.recv(min(1 << 16, size - len(parts)))
    return bytes(parts)


def ends(work: Any, within: float = PATIENCE) -> bool:
    """Whether it comes to its end though nobody reads."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(within)
    return not thread.is_alive()


def test_steps_are_told_to_a_front_that_does_not_read_for_a_while() -> None:
    ours, theirs = narrow()
    outbox = Outbox(theirs)
    assert ends(lambda: [outbox.send([STEP]) for _ in range(200)])
    assert read(ours, 200 * len(STEP)) == 200 * STEP


def test_control_writing_to_the_socket_itself_waits() -> None:
    ours, theirs = narrow()
    assert not ends(lambda: [theirs.sendall(STEP) for _ in range(200)], within=0.5)
    assert read(ours, 200 * len(STEP)) == 200 * STEP


def test_not_more_waits_than_may() -> None:
    ours, theirs = narrow()
    outbox = Outbox(theirs, most=100_000)
    sender = threading.Thread(target=lambda: [outbox.send([STEP]) for _ in range(200)])
    sender.start()
    sender.join(0.5)
    assert sender.is_alive()
    assert read(ours, 200 * len(STEP)) == 200 * STEP
    sender.join(PATIENCE)
    assert not sender.is_alive()


pieces = st.lists(st.lists(st.binary(max_size=20_000), max_size=3), max_size=8)


@settings(max_examples=30)
@given(first=pieces, second=pieces)
def test_every_message_arrives_whole_whoever_else_sends(first: Any, second: Any) -> None:
    ours, theirs = narrow()
    outbox = Outbox(theirs)
    said = [[bytes([at]) + b"".join(message) for message in sender]
            for at, sender in enumerate((first, second))]  # fmt: skip
    framed = [[len(message).to_bytes(4, "big") + message for message in sender] for sender in said]
    threads = [
        threading.Thread(target=lambda sender=sender: [outbox.send([it]) for it in sender])
        for sender in framed
    ]
    for thread in threads:
        thread.start()
    heard: list[list[bytes]] = [[], []]
    for _ in range(len(first) + len(second)):
        message = read(ours, int.from_bytes(read(ours, 4), "big"))
        heard[message[0]].append(message)
    for thread in threads:
        thread.join()
    outbox.flush(PATIENCE)
    assert heard == said
    ours.close()
    theirs.close()


def test_senders_hear_that_nobody_reads_any_more() -> None:
    ours, theirs = narrow()
    outbox = Outbox(theirs, most=20_000)
    ours.close()
    with pytest.raises(BrokenPipeError):
        deque((outbox.send([STEP]) for _ in range(100)), maxlen=0)


# -- how much a socket holds -------------------------------------------------------------------


class Recorded:
    """most: what the system grants; beyond it macOS refuses."""

    def __init__(self, most: int):
        self.most = most
        self.set: dict[int, int] = {}

    def setsockopt(self, _: int, option: int, size: int) -> None:
        if size > self.most:
            raise OSError(55, "No buffer space available")
        self.set[option] = size


@pytest.mark.parametrize(("most", "granted"), [(8 << 20, ROOM), (600_000, ROOM >> 1)])
def test_both_sides_ask_for_room(most: int, granted: int) -> None:
    end: Any = Recorded(most)
    widen(end)
    assert end.set == {socket.SO_SNDBUF: granted, socket.SO_RCVBUF: granted}
