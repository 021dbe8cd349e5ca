"""A Bushel server as commands talk to it: found, asked, and its errors told in its own words."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from bushel.core import BushelError
from bushel.core.running_servers import running_servers

URL = "BUSHEL_URL"
KEY = "BUSHEL_API_KEY"
USUAL = "http://127.0.0.1:8000"
_CONNECT = 5.0  # seconds to be let in


class ServerError(BushelError):
    """What a server answered instead. status: of HTTP; 0 if there was no answer."""

    def __init__(self, message: str, status: int = 0):
        super().__init__(message)
        self.status = status


class ServerClient:
    """One server, and the key it is asked with. Nothing is kept open between two requests.

    patience: seconds without a byte after which it counts as gone; None waits for ever. A server
    sends a sign of life while a prompt is long.
    """

    def __init__(self, url: str, key: str | None = None, patience: float | None = 600.0):
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BushelError(f"Not the address of a server: {url}. It looks like {USUAL}.")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/").removesuffix("/v1")
        self.key = key
        self._parts = urlsplit(self.url)
        self._patience = patience

    def get(self, path: str) -> Any:
        return self._answer("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        return self._answer("POST", path, body)

    def events(self, path: str, body: object) -> Iterator[dict[str, Any]]:
        """What it streams in the form of chats. Closing the iterator cancels the request."""
        with self._asked("POST", path, body) as response:
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                event: dict[str, Any] = json.loads(data)
                if "error" in event:
                    raise ServerError(_message(event), response.status)
                yield event
        raise ServerError(f"{self.url} broke off in the middle of an answer.")

    def models(self) -> list[dict[str, Any]]:
        """Cards of the models it serves, the first of each by its first name."""
        cards = self.get("/v1/models")["data"]
        return [card for card in cards if card.get("root", card["id"]) == card["id"]]

    def _answer(self, method: str, path: str, body: object | None) -> Any:
        with self._asked(method, path, body) as response:
            return json.loads(response.read() or b"null")

    @contextlib.contextmanager
    def _asked(
        self, method: str, path: str, body: object | None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection()
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None:
            headers["content-type"] = "application/json"
        try:
            connection.connect()
            connection.sock.settimeout(self._patience)
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, self._parts.path + path, sent, headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _refused(response)
            yield response
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"{self.url} does not answer: {_reason(error)}.") from error
        except json.JSONDecodeError as error:
            raise ServerError(f"{self.url} does not answer as a Bushel server does.") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=_CONNECT)
        return http.client.HTTPConnection(host, port, timeout=_CONNECT)


def find_server(url: str | None = None, key: str | None = None) -> ServerClient | None:
    """The one that is named (or by BUSHEL_URL), or the newest that this user runs here, or whoever
    answers at the usual address; None if nobody was named and none runs. ServerError if the named
    one does not answer.
    """
    key = key or usual_key()
    if named := url or os.environ.get(URL):
        server = ServerClient(named, key)
        _check(server)
        return server
    for place in (*(record.url for record in running_servers()), USUAL):
        server = ServerClient(place, key)
        with contextlib.suppress(ServerError):
            _check(server)
            return server
    return None


def usual_key() -> str | None:
    """The first of those that a server of this environment would take."""
    return os.environ.get(KEY, "").split(",")[0].strip() or None


def _check(server: ServerClient) -> None:
    """ServerError if it is not one. Loading, busy and locked servers are."""
    try:
        server.get("/health")
    except ServerError as error:
        if error.status not in (401, 403, 429, 503):
            raise


def _refused(response: http.client.HTTPResponse) -> ServerError:
    text = response.read(65536)
    with contextlib.suppress(ValueError, TypeError):
        return ServerError(_message(json.loads(text)), response.status)
    return ServerError(f"The server answered with {response.status}.", response.status)


def _message(body: dict[str, Any]) -> str:
    error = body["error"]
    return str(error["message"] if isinstance(error, dict) else error)


def _reason(error: Exception) -> str:
    if isinstance(error, socket.timeout):
        return "it took too long"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
