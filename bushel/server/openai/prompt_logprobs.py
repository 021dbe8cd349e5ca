"""Log-probabilities of a prompt's tokens, in vLLM's form: by their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bushel.core import TokenLogprob
from bushel.server.api.errors import InvalidField
from bushel.server.api.logprobs import finite
from bushel.server.openai.schema import OpenAIRequest

if TYPE_CHECKING:
    from bushel.text.vocabulary import Vocabulary


def require_whole_reply(body: OpenAIRequest) -> None:
    """They are told with a reply that comes in one piece."""
    if body.prompt_logprobs is not None and body.stream:
        raise InvalidField("prompt_logprobs", "is not available in a stream", code=None)


def prompt_logprob_entries(
    vocabulary: Vocabulary, logprobs: Iterable[TokenLogprob | None], count: int
) -> list[dict[int, dict[str, Any]] | None]:
    """For each token, itself and the so many likeliest in its place. The first has none."""

    def entry(token: int, logprob: float, rank: int | None) -> dict[str, Any]:
        text = vocabulary.text(token)
        return {"logprob": finite(logprob), "rank": rank, "decoded_token": text}

    return [
        None
        if own is None
        else {
            own.token_id: entry(own.token_id, own.logprob, own.rank),
            **{
                token: entry(token, logprob, at + 1)
                for at, (token, logprob) in enumerate(own.top[:count])
                if token != own.token_id
            },
        }
        for own in logprobs
    ]
