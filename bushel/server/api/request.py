"""From a request to a job: what is the same whichever API it came by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from fastapi import Request
from starlette.datastructures import Headers

from bushel.core import SamplingParams
from bushel.core.params import BOUNDS
from bushel.server.callers import covered_key, is_background, owner_of
from bushel.server.service.job import GenerationJob

if TYPE_CHECKING:
    from bushel.server.service.service import Service

# A reply for which nobody says how long it may be ends by itself or with the context: memory is
# promised as it grows, and not for all of it.
UNLIMITED = int(BOUNDS["max_tokens"].high)
# What such a reply counts as, where one request orders many.
USUAL_REPLY = 4096


def salt_of(service: Service, headers: Headers, cache_salt: str | None) -> str:
    """Whose requests may share what was computed; a key is covered without being told."""
    salt = cache_salt or ""
    if not service.options.cache_per_key:
        return salt
    return hashlib.sha256(f"{covered_key(headers)}\0{salt}".encode()).hexdigest()


class GenerationBody(Protocol):
    """What every body that asks for a reply has."""

    @property
    def stream(self) -> bool | None: ...

    @property
    def timeout(self) -> float | None: ...

    @property
    def cache_salt(self) -> str | None: ...

    @property
    def priority(self) -> int | None: ...


def generation_job(
    service: Service,
    request: Request,
    body: GenerationBody,
    prompt: Mapping[str, Any],
    params: SamplingParams,
    *,
    model: str,
    api: str,
    reply_tokens: int = UNLIMITED,
    reads: bool = True,
) -> GenerationJob:
    """prompt: what `chat.prepare` takes. reads: its reply may have thoughts and calls."""
    return GenerationJob(
        request=prompt,
        params=params,
        model=model,
        api=api,
        reply_tokens=reply_tokens,
        stream=bool(body.stream),
        timeout=body.timeout,
        owner=owner_of(service.options, request.headers),
        salt=salt_of(service, request.headers, body.cache_salt),
        reads=reads,
        priority=body.priority or 0,
        background=is_background(request.scope),
    )
