"""Whose key a request came with, and what that key may do."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

from bushel.server.errors import ApiError
from bushel.server.options import ServerOptions

# What the server asks itself is some key's, of which no more is known than this. HTTP knows no name
# with a space, so that nobody else can say it.
OWNER_HEADER = "bushel owner"
_BACKGROUND = "background"  # in a scope's state, which is the server's own


@dataclass(frozen=True)
class Caller:
    """Whose key a request came with. An operator sees, changes and ends what belongs to any key
    (B68).
    """

    owner: str
    operator: bool

    def sees(self, owner: str) -> bool:
        return self.operator or owner == self.owner

    def require_operator(self, what: str) -> None:
        if not self.operator:
            raise ApiError(
                403,
                f"{what} affects all API keys and needs an operator key. Start the server with "
                "--operator-key KEY and send that key.",
                code="operator_only",
            )


class ApiKeys:
    """Every key is compared in full with what was sent, so that time tells nothing.

    Where no operator's key was named, a single key is one, and without any key everyone is.
    """

    def __init__(self, options: ServerOptions):
        self._options = options
        self._known = _digests(options.keys)
        several = len(options.api_keys) > 1
        self._operators = _digests(options.operator_keys) or ([] if several else self._known)

    def __bool__(self) -> bool:
        return bool(self._known)

    def check(self, headers: Headers) -> None:
        sent = sent_key(headers)
        if not _among(sent, self._known):
            message = "The API key is wrong." if sent else "An API key is needed."
            raise ApiError(401, message, code="invalid_api_key")

    def caller(self, headers: Headers) -> Caller:
        operator = not self._known or _among(sent_key(headers), self._operators)
        return Caller(owner_of(self._options, headers), operator)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _digests(keys: Sequence[str]) -> list[bytes]:
    return [hashlib.sha256(key.encode()).digest() for key in keys]


def _among(sent: bytes, known: Sequence[bytes]) -> bool:
    digest = hashlib.sha256(sent).digest()
    matches = [hmac.compare_digest(digest, other) for other in known]
    return any(matches)


def sent_key(headers: Headers) -> bytes:
    """Right or wrong; empty if there is none."""
    scheme, _, sent = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        sent = headers.get("x-api-key", "")
    # Headers are bytes that starlette shows as Latin-1.
    return sent.strip().encode("latin-1")


def covered_key(headers: Headers) -> str:
    """What was sent for a key; responses are kept for who sends the same."""
    return headers.get(OWNER_HEADER) or hashlib.sha256(sent_key(headers)).hexdigest()


def background_state() -> dict[str, bool]:
    """The state of a request that the server asks itself, and that nobody waits for."""
    return {_BACKGROUND: True}


def is_background(scope: Scope) -> bool:
    return bool(scope.get("state", {}).get(_BACKGROUND))


def owner_of(options: ServerOptions, headers: Headers) -> str:
    """Whose requests these are: a key's. Without keys all are one owner's, since whoever invents
    some would have as many turns."""
    return covered_key(headers) if options.keys else ""
