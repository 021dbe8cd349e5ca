"""Whether a text can be as long as it seems, told before all of it is tokenized.

Tokenizing takes 2 to 6 s per million characters, and a body may hold many millions. So a long text
is tokenized piece by piece first, until it is known to be too long. Each cut may add tokens to what
the whole has, but no more than it has characters around it; they are not counted.
"""

from __future__ import annotations

from bushel.core import ContextLengthError, RequestError
from bushel.models import Preparer

_PIECE = 1 << 15  # characters: at most 0.2 s, and few enough cuts for the count to be near
# A text with fewer characters per token of the context is tokenized at once: half of one in
# English, and never more than a second's work for a context of 64k.
_SHORT = 2
_COUNTED = 2  # contexts that a text may have which is only to be counted
_UNKNOWN = 1 << 20  # tokens, where a model does not tell its context


def require_room(host: Preparer, text: str, param: str) -> None:
    """Refuses what cannot fit the context."""
    if host.context is not None and (least := tokens_at_least(host, text, host.context)):
        raise ContextLengthError(least, host.context, param, at_least=True)


def require_countable(host: Preparer, text: str, param: str, contexts: int = _COUNTED) -> None:
    """Refuses what is so far beyond the context that nobody has to know how far."""
    most = contexts * (host.context or _UNKNOWN)
    if tokens_at_least(host, text, most):
        raise RequestError(
            f"The text has more than {most} tokens, which is {contexts} times what this model's "
            "context holds. Longer texts are not counted: send it in parts.",
            code="context_length_exceeded",
            param=param,
        )


def tokens_at_least(host: Preparer, text: str, most: int) -> int:
    """Tokens that the text has at least, if these are more than `most`; else 0."""
    longest = host.tokenizer.longest
    # Encoders' tokenizers leave spaces out, and have one token for any word that is too long.
    if host.task == "generate" and (least := len(text) // longest) > most:
        return least
    if len(text) <= _SHORT * most:
        return 0
    count = 0
    for start in range(0, len(text), _PIECE):
        ids = host.tokenizer.encode(text[start : start + _PIECE], add_special_tokens=False)
        count += len(ids) - 2 * longest
        if count > most:
            return count
    return 0
