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
from contextlib import suppress
from functools import cached_property
from threading import Lock
from weakref import WeakKeyDictionary

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from bushel.core import RequestError, public_message
from bushel.text.tokenizer import Tokenizer

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

_vocabularies: WeakKeyDictionary[Tokenizer, LLTokenizer] = WeakKeyDictionary()
_building = Lock()


def vocabulary(tokenizer: Tokenizer, vocab: int) -> LLTokenizer:
    """The bytes of every token: made once, about a second of work for a large vocabulary.

    RequestError if this tokenizer's tokens cannot be told.
    """
    with _building:
        if (known := _vocabularies.get(tokenizer)) is None:
            known = _vocabularies[tokenizer] = _read(tokenizer, vocab)
        return known


def warm(tokenizer: Tokenizer, vocab: int) -> None:
    """Make what the first grammar would have to wait for, and everybody with it."""
    with suppress(RequestError):  # it is said to whoever asks for a grammar
        vocabulary(tokenizer, vocab)


def _read(tokenizer: Tokenizer, vocab: int) -> LLTokenizer:
    text = tokenizer.as_json()
    if text is None:
        raise _unsupported("it is not of the tokenizers library")
    said = json.loads(text)
    said["truncation"] = said["padding"] = None  # forced text is written in whole tokens
    ends = sorted(tokenizer.end_ids)
    try:
        # A tokenizer may know more tokens than the model has.
        known = max(vocab, len(tokenizer.hf))
        return LLTokenizer(json.dumps(said), n_vocab=known, eos_token=ends or None)
    except Exception as error:  # it says by ValueError what it cannot read
        raise _unsupported(public_message(error)) from error


def _unsupported(why: str) -> RequestError:
    return RequestError(
        f"Structured output is not possible with this model's tokenizer: {why}. Send the request "
        "without a response format, a required tool or strict tools.",
        code="unsupported_grammar",
        param="response_format",
    )


def compiled(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    """At its start. RequestError, with the library's words, if it cannot be."""
    matcher = LLMatcher(tokens, _spelled(tokens, grammar), log_level=0, limits=LIMITS)
    if matcher.is_error():
        raise RequestError(
            f"The schema or grammar of the reply cannot be used: {said_by(matcher)}",
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
    for it in several["grammars"]:
        it["lark_grammar"] = f"{_ANY_TOKENS}{it['lark_grammar']}"
    return json.dumps(several)


def prove(tokens: LLTokenizer, grammar: str) -> None:
    """RequestError if it cannot be compiled, or a reply to it not even begun."""
    matcher = compiled(tokens, grammar)
    matcher.compute_bitmask()
    if matcher.is_error():
        raise RequestError(
            f"The schema or grammar of the reply is too complex: {said_by(matcher)}",
            code="invalid_grammar",
        )


def said_by(matcher: LLMatcher) -> str:
    """Its error in one line, without the grammar's own text around the place."""
    words = _EXCERPT.split(matcher.get_error())[0]
    return public_message(ValueError(_PLACE.sub("", words)))


class Grammars:
    """Compiled off the engine's thread, and kept. Owned by one engine, which alone calls it."""

    def __init__(self, tokenizer: Tokenizer, vocab: int):
        self._tokenizer = tokenizer
        self._vocab = vocab
        self._kept: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")

    def warm(self) -> None:
        warm(self._tokenizer, self._vocab)

    def begin(self, grammar: str, rows: int) -> Future[list[LLMatcher]]:
        """A matcher for each of so many rows, all at the start."""
        return self._threads.submit(self._make, grammar, rows)

    def _make(self, grammar: str, rows: int) -> list[LLMatcher]:
        with self._lock:
            first = self._kept.get(grammar)
        if first is None:
            first = compiled(vocabulary(self._tokenizer, self._vocab), grammar)
        with self._lock:
            self._kept[grammar] = first
            self._kept.move_to_end(grammar)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return [first.deep_copy() for _ in range(rows)]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
