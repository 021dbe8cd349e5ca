"""What kind of answer a client asks for."""

from __future__ import annotations

from starlette.datastructures import Headers


def wants_html(headers: Headers) -> bool:
    """Whether a person looks: browsers name it, other clients take anything."""
    return "text/html" in headers.get("accept", "").lower()
