"""Samplers, and limits of what is chosen, that OpenAI and Anthropic do not have.

Every API takes them, by the names that llama.cpp, mlx-lm and vLLM have for them. A temperature of 0
takes the likeliest token whatever they say of drawing; penalties and what may not be chosen count
there, too.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, PlainValidator, WithJsonSchema

from bushel.core.params import LONGEST_WORD, MAX_BAD_WORDS, MAX_BREAKERS, SamplingParams
from bushel.server.api.errors import unsupported
from bushel.server.api.fields import (
    DryAllowedLength,
    DryBase,
    DryLastN,
    DryMultiplier,
    Flag,
    ManyTokenIds,
    TopNSigma,
    TypicalP,
    XtcProbability,
    XtcThreshold,
)

_Word = Annotated[str, Field(strict=True, min_length=1, max_length=LONGEST_WORD)]
_LAST = SamplingParams()


def _off(value: Any) -> None:
    if value is not None and (isinstance(value, bool) or value != 0):
        raise unsupported("", "is not supported by this server, unless it is 0")


# A sampler that is refused by name where it would do something.
Off = Annotated[
    Any,
    PlainValidator(_off),
    WithJsonSchema({"enum": [None, 0]}),
    Field(description="Not supported: refused by name, unless it is 0."),
]


def _by_default(name: str, text: str) -> Any:
    return Field(description=f"{text} (default: {getattr(_LAST, name):g}).")


class SamplerFields(BaseModel):
    typical_p: Annotated[
        TypicalP | None,
        _by_default(
            "typical_p",
            "Draw from the tokens that surprise about as much as one is expected to, of this "
            "probability together",
        ),
    ] = None
    top_n_sigma: Annotated[
        TopNSigma | None,
        _by_default(
            "top_n_sigma",
            "Draw from tokens whose logits are at most so many standard deviations below the "
            "largest; 0 or -1: from all",
        ),
    ] = None
    xtc_probability: Annotated[
        XtcProbability | None,
        _by_default(
            "xtc_probability",
            "How likely it is, for each token, that the likeliest ones are left out (XTC)",
        ),
    ] = None
    xtc_threshold: Annotated[
        XtcThreshold | None,
        _by_default(
            "xtc_threshold",
            "Of the tokens of this probability or more, XTC leaves out all but the least likely",
        ),
    ] = None
    dry_multiplier: Annotated[
        DryMultiplier | None,
        _by_default(
            "dry_multiplier",
            "Taken from the logits of tokens that would go on with a repetition (DRY), times "
            "`dry_base` for each token that it is longer; 0: off",
        ),
    ] = None
    dry_base: Annotated[
        DryBase | None,
        _by_default("dry_base", "How much more a repetition costs that is longer by a token"),
    ] = None
    dry_allowed_length: Annotated[
        DryAllowedLength | None,
        _by_default(
            "dry_allowed_length", "Tokens of a repetition that cost `dry_multiplier` alone"
        ),
    ] = None
    dry_penalty_last_n: Annotated[
        DryLastN | None,
        _by_default(
            "dry_penalty_last_n",
            "Of how many of the last tokens, prompt included, repetitions count; -1: of all; 0: "
            "DRY is off",
        ),
    ] = None
    dry_sequence_breakers: (
        Annotated[list[_Word], Field(max_length=MAX_BREAKERS, fail_fast=True)] | None
    ) = Field(
        None,
        description="What no repetition goes across: ASCII characters and special tokens. Others "
        "are refused, since no token tells of them (default: a new line, a colon, a quotation mark "
        "and an asterisk).",
    )
    allowed_token_ids: ManyTokenIds | None = Field(
        None,
        description="The only token ids that are chosen, unless the form of the reply needs others "
        "(default: all).",
    )
    bad_words: Annotated[list[_Word], Field(max_length=MAX_BAD_WORDS, fail_fast=True)] | None = (
        Field(
            None,
            description="Words that are not said in the tokens that they are usually written "
            "with, unless the form of the reply needs them.",
        )
    )
    include_stop_str_in_output: Flag | None = Field(
        None,
        description="Whether the text ends with the stop that ended it (default: false).",
    )
    skip_special_tokens: Flag | None = Field(
        None, description="false: special tokens of the reply are part of its text (default: true)."
    )
    speculate: Flag | None = Field(
        None,
        description="false: no tokens are guessed ahead. Guesses change no token, only how soon it "
        "comes (default: true, where the server guesses).",
    )
    mirostat: Off = None
    dynatemp_range: Off = None

    def sampler_params(self) -> dict[str, Any]:
        """Arguments of `SamplingParams`, as far as the request names them."""
        named = {name: getattr(self, name) for name in _PARAMS}
        return {name: value for name, value in named.items() if value is not None}


_PARAMS = [name for name in SamplerFields.model_fields if hasattr(_LAST, name)]
