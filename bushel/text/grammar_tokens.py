"""A tokenizer's tokens as llguidance knows them: the bytes of each."""

from __future__ import annotations

import json

from llguidance import LLTokenizer

from bushel.core import RequestError, public_message
from bushel.text.tokenizer import Tokenizer


def read_grammar_tokens(tokenizer: Tokenizer, vocab: int) -> LLTokenizer:
    """About a second of work for a large vocabulary: see `TokenizerProfile.grammar_tokens`.

    RequestError if this tokenizer's tokens cannot be told.
    """
    text = tokenizer.as_json()
    if text is None:
        raise _unsupported("it is not of the tokenizers library")
    described = json.loads(text)
    described["truncation"] = described["padding"] = None  # forced text is written in whole tokens
    ends = sorted(tokenizer.end_ids)
    try:
        # A tokenizer may know more tokens than the model has.
        known = max(vocab, len(tokenizer.hf))
        return LLTokenizer(json.dumps(described), n_vocab=known, eos_token=ends or None)
    except Exception as error:  # it says by ValueError what it cannot read
        raise _unsupported(public_message(error)) from error


def _unsupported(why: str) -> RequestError:
    return RequestError(
        f"Structured output is not possible with this model's tokenizer: {why}. Send the request "
        "without a response format, a required tool or strict tools.",
        code="unsupported_grammar",
        param="response_format",
    )
