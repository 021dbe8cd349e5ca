"""From the text of a grammar to what follows a reply with it: llguidance's matchers. No MLX.

Compiling takes milliseconds as a rule and seconds at worst, so that it happens in threads of its
own (`Grammars`), and before that in a worker that can be killed (`chat.process`). What is built
here is bounded by LIMITS, when it is compiled and at every token.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from threading import Lock

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from bushel.core import RequestError, public_message
from bushel.text.profile import TokenizerProfile

# The library's defaults allow 14 ms of lexing for one token and 500 MB of its states; schemas
# of real clients stay below a hundredth of both. A reply that passes a limit fails alone.
LIMITS = LLParserLimits(
    max_items_in_row=1000,
    step_lexer_fuel=50_000,
    step_max_items=10_000,
    max_lexer_states=20_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
_THREADS = 2  # one grammar that takes seconds does not hold up the next
_KEPT = 64  # compiled grammars; agents send the same ones with every turn

_ANY_TOKENS = '%llguidance {"no_forcing": true}\n'
_EXCERPT = re.compile(r"\n\s*\d+ \| |\s*<state>|\s*<non-verbose/>")
_PLACE = re.compile(r"^at \d+\(\d+\): |failed to compile JSON schema: ")


def compiled(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    """At its start. RequestError, with the library's words, if it cannot be."""
    matcher = LLMatcher(tokens, _spelled(tokens, grammar), log_level=0, limits=LIMITS)
    if matcher.is_error():
        raise RequestError(
            f"The schema or grammar of the reply cannot be used: {error_of(matcher)}",
            code="invalid_grammar",
        )
    return matcher


def _spelled(tokens: LLTokenizer, grammar: str) -> str:
    """Text that must come is written in the tokenizer's own tokens, if these say the same.

    Some tokenizers change text, if only its accents; with those, any tokens may spell it.
    """
    if tokens.decode_str(tokens.tokenize_str(grammar)) == grammar:
        return grammar
    if not grammar.startswith("{"):
        return f"{_ANY_TOKENS}{grammar}"
    several = json.loads(grammar)
    for each in several["grammars"]:
        each["lark_grammar"] = f"{_ANY_TOKENS}{each['lark_grammar']}"
    return json.dumps(several)


def prove(tokens: LLTokenizer, grammar: str) -> None:
    """RequestError if it cannot be compiled, or a reply to it not even begun."""
    matcher = compiled(tokens, grammar)
    matcher.compute_bitmask()
    if matcher.is_error():
        raise RequestError(
            f"The schema or grammar of the reply is too complex: {error_of(matcher)}",
            code="invalid_grammar",
        )


def error_of(matcher: LLMatcher) -> str:
    """Its error in one line, without the grammar's own text around the place."""
    words = _EXCERPT.split(matcher.get_error())[0]
    return public_message(ValueError(_PLACE.sub("", words)))


class Grammars:
    """Compiled off the engine's thread, and kept. Owned by one engine, which alone calls it."""

    def __init__(self, profile: TokenizerProfile):
        self._profile = profile
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")

    def warm(self) -> None:
        self._profile.warm_grammars()

    def begin(self, grammar: str, rows: int) -> Future[list[LLMatcher]]:
        """A matcher for each of so many rows, all at the start."""
        return self._threads.submit(self._make, grammar, rows)

    def _make(self, grammar: str, rows: int) -> list[LLMatcher]:
        with self._lock:
            first = self._kept.get(grammar)
        if first is None:
            first = compiled(self._profile.grammar_tokens, grammar)
        with self._lock:
            self._kept[grammar] = first
            self._kept.move_to_end(grammar)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return [first.deep_copy() for _ in range(rows)]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
