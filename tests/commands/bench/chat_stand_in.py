"""A chat server of somebody else: it streams words, counts them in its usage, and may refuse."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BESIDE = 3  # tokens of its template; every word is one


class ChatStandIn:
    """refuses: of streamed requests, by their number from 0, which get an error."""

    def __init__(self, refuses: Callable[[int], bool] = lambda _: False):
        self.refuses = refuses
        self.models: object = {"data": [{"id": "theirs"}]}
        self.bodies: list[dict[str, Any]] = []
        self.streamed = 0
        self.url = ""
        self._lock = threading.Lock()

    def number(self, body: dict[str, Any]) -> int:
        with self._lock:
            self.bodies.append(body)
            self.streamed += bool(body.get("stream"))
            return self.streamed - 1


def _usage(body: dict[str, Any]) -> dict[str, Any]:
    prompt = BESIDE + len(body["messages"][0]["content"].split())
    return {"prompt_tokens": prompt, "completion_tokens": body["max_tokens"]}


def _handler(server: ChatStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/v1/models"
            self._answer(200 if known else 404, server.models if known else {})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path != "/v1/chat/completions":
                self._answer(404, {})
                return
            number = server.number(body)
            if not body.get("stream"):
                self._answer(200, {"choices": [], "usage": _usage(body)})
            elif server.refuses(number):
                self._answer(503, {"error": {"message": "Too busy for you."}})
            else:
                self._stream(body)

        def _answer(self, status: int, body: object) -> None:
            payload = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def _stream(self, body: dict[str, Any]) -> None:
            """Without a length and without chunks: it ends with its connection."""
            self.send_response(200)
            self.end_headers()
            events: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant"}}]}]
            for _ in range(body["max_tokens"]):
                events.append({"choices": [{"delta": {"content": "word "}}]})
            events.append({"choices": [], "usage": _usage(body)})
            for event in events:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextlib.contextmanager
def chat_stand_in(refuses: Callable[[int], bool] = lambda _: False) -> Iterator[ChatStandIn]:
    server = ChatStandIn(refuses)
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(server)) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield server
        http.shutdown()
