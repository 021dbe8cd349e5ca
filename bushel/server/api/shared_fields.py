"""Request fields that several APIs have, each with what it does; any of them may be null."""

from __future__ import annotations

from typing import Annotated, Any

from bushel.core.params import LIBRARY_DEFAULTS
from bushel.server.api.descriptions import about
from bushel.server.api.fields import (
    Flag,
    Hint,
    Priority,
    Salt,
    Seconds,
    StreamOptions,
    TemplateOptions,
    TokensOrNone,
    TopK,
    TopP,
)


def sampled(name: str, text: str) -> Any:
    """About a sampling parameter that the server's flags and the model have defaults for."""
    last = getattr(LIBRARY_DEFAULTS, name)
    return about(f"{text} (default: the server's, the model's, or {last:g}).")


# -- which model, and how it is answered -------------------------------------------------------

MODEL = about(
    "A name that a model is served under, or an alias of one; others get a 404 (default: the "
    "server's first)."
)
Model = Annotated[Hint | None, MODEL]
Stream = Annotated[
    Flag | None, about("Send the reply as server-sent events while it is made (default: false).")
]
StreamedUsage = Annotated[StreamOptions | None, about("What a stream tells beside the reply.")]
Timeout = Annotated[
    Seconds | None,
    about("Seconds after which the request ends with an error: a 408 (default: the server's)."),
]
CacheSalt = Annotated[
    Salt | None,
    about("What was computed for this prompt serves only requests with the same salt."),
]
RequestPriority = Annotated[
    Priority | None,
    about(
        "Of the requests of one key that wait, those with the lowest value go first; none waits "
        "for ever (default: 0)."
    ),
]

# -- how tokens are chosen ---------------------------------------------------------------------

TEMPERATURE = sampled("temperature", "How freely tokens are drawn; 0 takes the likeliest")
NucleusMass = Annotated[
    TopP | None,
    sampled("top_p", "Draw from the fewest tokens that have this probability together"),
]
SEED = about(
    "The same seed gives the same reply to the same request (default: a new one each time)."
)
LikeliestTokens = Annotated[
    TopK | None, sampled("top_k", "Draw from so many of the likeliest tokens; 0 or -1: from all")
]
STOPS = about("Texts that end the reply and are not part of it; one may stand without a list.")
IgnoreEos = Annotated[
    Flag | None,
    about("Whether the model's own end tokens do not end the reply (default: false)."),
]
_LIMIT = "Tokens of the reply, at most, thoughts included"
_NO_LIMIT = "(default: the server's, the model's, or what the context has room for)."
REPLY_LIMIT = about(f"{_LIMIT}; -1: until the context ends {_NO_LIMIT}")
REPLY_LIMIT_OR_NONE = about(
    f"{_LIMIT}; 0: nothing is said, but the prompt is kept for later ones {_NO_LIMIT}"
)
TOP_LOGPROBS = "How many of the likeliest tokens are listed beside each one"

# -- what the model is told --------------------------------------------------------------------

TemplateVariables = Annotated[
    TemplateOptions | None,
    about("Variables of the model's chat template; one that it does not read is ignored."),
]
GenerationPrompt = Annotated[
    Flag | None,
    about(
        "Whether the prompt ends with the opening of the assistant's turn (default: true, unless "
        "the last message is continued)."
    ),
]
Effort = Annotated[
    Hint | None,
    about(
        "How much the model thinks: minimal, low, medium, high, xhigh or max, or the nearest that "
        "its template knows; none turns thinking off where that can be done."
    ),
]
ThoughtLimit = Annotated[
    TokensOrNone | None,
    about("Tokens of thoughts, after which they are closed; 0 turns thinking off."),
]
SWITCH = about("Whether the model thinks, where its template has a switch (default: the model's).")
SeveralCalls = Annotated[
    Flag | None, about("Whether one reply may make several calls (default: true).")
]
HELD_TO = about("A JSON schema that the reply must match.")
FORM = about("What form the reply must have (default: text).")
SCHEMA_NAME = about("A name for the schema; it makes no difference.")
SCHEMA_STRICT = about("Ignored: the reply is held to the schema in any case.")

# -- hints that need nothing done --------------------------------------------------------------

IGNORED = about("A hint that needs nothing done: accepted and ignored.")
REPEATED = about("A hint that needs nothing done: it comes back in the response.")
IgnoredHint = Annotated[Hint | None, IGNORED]
IgnoredObject = Annotated[dict[str, Any] | None, IGNORED]
RepeatedHint = Annotated[Hint | None, REPEATED]
