"""How one request wants its tokens chosen.

`SamplingParams` is what a caller writes (None: not said); `Decoding` is what the engine obeys,
after the model's generation config and the defaults have filled the gaps.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bushel.core.constraint import Constraint
from bushel.core.errors import RequestError
from bushel.core.spelling import did_you_mean

# mlx-lm's own `generate_step` stops here when nobody says otherwise.
DEFAULT_MAX_TOKENS = 256
MAX_STOPS = 64
MAX_SALT = 256  # characters
MAX_BAD_WORDS = 256
LONGEST_WORD = 256  # characters of a bad word or of a sequence breaker
MAX_BREAKERS = 64
# As llama.cpp and those who came after it have them.
DRY_BREAKERS = ("\n", ":", '"', "*")
MOST_PRIORITY = (1 << 31) - 1  # and as much below zero
_MOST_TOKENS = 1 << 31


@dataclass(frozen=True)
class Bound:
    """From `low` to `high`, both included. rule: what a caller is told who leaves it. whole: no
    fractions.
    """

    low: float
    high: float
    rule: str
    whole: bool = False


# Each bound of a sampling parameter: request fields and flags are made from this table. Those of
# `logprobs` and token ids are the vocabulary's.
BOUNDS = {
    "max_tokens": Bound(1, _MOST_TOKENS, "one or more", whole=True),
    "min_tokens": Bound(0, _MOST_TOKENS, "zero or more", whole=True),
    "temperature": Bound(0, 100, "between 0 and 100"),
    "top_p": Bound(0, 1, "between 0 and 1"),
    "top_k": Bound(-1, _MOST_TOKENS, "zero or more", whole=True),  # -1 is off, as 0 is
    "min_p": Bound(0, 1, "between 0 and 1"),
    "typical_p": Bound(0, 1, "between 0 and 1"),
    "top_n_sigma": Bound(-1, 100, "between -1 and 100"),  # -1 is off, as 0 is
    "xtc_probability": Bound(0, 1, "between 0 and 1"),
    "xtc_threshold": Bound(0, 1, "between 0 and 1"),
    "dry_multiplier": Bound(0, 100, "between 0 and 100"),
    "dry_base": Bound(1, 100, "between 1 and 100"),
    # A row that comes back looks for its repeats in so many passes over its tokens, at most, and
    # as many again.
    "dry_allowed_length": Bound(0, 128, "between 0 and 128", whole=True),
    "dry_penalty_last_n": Bound(-1, _MOST_TOKENS, "-1 or more", whole=True),
    "repetition_penalty": Bound(1e-3, 1e3, "positive"),
    "repeat_last_n": Bound(-1, _MOST_TOKENS, "-1 or more", whole=True),
    "presence_penalty": Bound(-100, 100, "finite"),
    "frequency_penalty": Bound(-100, 100, "finite"),
    "logit_bias": Bound(-1e6, 1e6, "finite numbers"),
    "seed": Bound(-(1 << 63), (1 << 64) - 1, "a 64-bit integer", whole=True),
    "n": Bound(1, 128, "between 1 and 128", whole=True),
}


@dataclass(frozen=True)
class SamplingParams:
    """How a reply's tokens are chosen. None: as the model's generation config says, or the default.

    A dict of the same names does as well. max_tokens, min_tokens: of the reply; without a limit it
    is 256. temperature: 0 takes the likeliest token. seed: the same one gives the same reply.
    stop, stop_token_ids: what ends it, and is not shown unless include_stop_str_in_output says so.
    n: choices, that share the prompt. logprobs, prompt_logprobs: how many of the likeliest tokens
    are listed beside each one. typical_p, top_n_sigma, xtc_…: what else may not be drawn. dry_…: a
    penalty on tokens that would go on with a repetition. repeat_last_n: tokens that
    repetition_penalty looks back at; -1 is all of them. allowed_token_ids, bad_words: what alone,
    and what never, is chosen. speculate: tokens may be drafted, which changes none of them.

    >>> llm = LLM("bushel:tiny")
    >>> short, long = llm.generate(
    ...     ["Once", "Once"], [SamplingParams(max_tokens=3), {"max_tokens": 9, "ignore_eos": True}]
    ... )
    >>> len(short.token_ids), len(long.token_ids)
    (3, 9)
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: Sequence[str] = DRY_BREAKERS
    seed: int | None = None
    repetition_penalty: float | None = None
    repeat_last_n: int = -1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    speculate: bool = True


# Names that llama.cpp and mlx-lm have for the same.
OTHER_NAMES = {"repeat_penalty": "repetition_penalty", "repetition_context_size": "repeat_last_n"}
SAMPLING_NAMES = frozenset([*(field.name for field in fields(SamplingParams)), *OTHER_NAMES])


def params_of(given: SamplingParams | Mapping[str, Any] | None) -> SamplingParams:
    """What a caller gave as parameters. RequestError names what is none."""
    if given is None or isinstance(given, SamplingParams):
        return given or SamplingParams()
    if not isinstance(given, Mapping):
        raise RequestError(
            f"params must be SamplingParams or a dict, not {type(given).__name__}.", param="params"
        )
    for name in given:
        if name not in SAMPLING_NAMES:
            hint = did_you_mean(name, SAMPLING_NAMES)
            raise RequestError(
                f"params: {str(name)[:60]!r} is not a sampling parameter{hint}", param=str(name)
            )
    return SamplingParams(**{OTHER_NAMES.get(name, name): given[name] for name in given})


def tokenized_texts(params: SamplingParams) -> dict[str, Any]:
    """What of it a tokenizer has to read (`chat.token_rules`), as keys of a request."""
    texts: dict[str, Any] = {}
    if params.bad_words:
        texts["bad_words"] = params.bad_words
    if params.dry_multiplier and params.dry_sequence_breakers:
        texts["dry_sequence_breakers"] = params.dry_sequence_breakers
    return texts


@dataclass(frozen=True)
class TokenRules:
    """What a request's sampling says in texts, as token ids.

    banned: sequences, of which the last token is not chosen after the others. breakers: tokens that
    no repetition goes across.
    """

    banned: tuple[tuple[int, ...], ...] = ()
    breakers: tuple[int, ...] = ()


@dataclass(frozen=True)
class GenerationDefaults:
    """What the checkpoint's generation config says; None where it is silent."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None  # that a server was given; checkpoints have none

    def over(self, other: GenerationDefaults) -> GenerationDefaults:
        """These, and the other's where they are silent."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(other, **{name: value for name, value in own.items() if value is not None})

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> GenerationDefaults:
        def number(name: str) -> float | None:
            value = config.get(name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return float(value) if is_number else None  # type: ignore[arg-type]

        top_k, max_new = number("top_k"), number("max_new_tokens")
        temperature = number("temperature")
        if config.get("do_sample") is False:
            temperature = 0.0
        elif config.get("do_sample") is True and temperature is None:
            temperature = 1.0
        return cls(
            temperature=temperature,
            top_p=number("top_p"),
            top_k=None if top_k is None else int(top_k),
            min_p=number("min_p"),
            repetition_penalty=number("repetition_penalty"),
            max_tokens=None if max_new is None else int(max_new),
        )


# Where neither the request nor the model's generation config says anything.
LIBRARY_DEFAULTS = GenerationDefaults(
    temperature=0.0,
    top_p=1.0,
    top_k=0,
    min_p=0.0,
    repetition_penalty=1.0,
    max_tokens=DEFAULT_MAX_TOKENS,
)


@dataclass(frozen=True)
class Decoding:
    """One row's settings, complete and valid. `temperature == 0` means greedy."""

    temperature: float
    top_p: float
    top_k: int  # 0: off
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    seed: int
    max_tokens: int
    min_tokens: int
    end_ids: frozenset[int]  # ids that end the reply, as this request sees them
    banned_early: frozenset[int]  # ids held down until min_tokens
    stops: tuple[str, ...]
    logprobs: int | None
    prompt_logprobs: int | None
    typical_p: float = 1.0
    top_n_sigma: float = 0.0  # 0: off
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1  # -1: all tokens
    repeat_last_n: int = -1  # -1: all tokens
    allowed_ids: tuple[int, ...] = ()  # empty: all
    include_stop: bool = False
    speculate: bool = True
    token_rules: TokenRules = TokenRules()
    constraint: Constraint | None = None
    markers: tuple[
        tuple[int, str], ...
    ] = ()  # special tokens that are text (`ReplyFormat.markers`)

    @property
    def penalised(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def windowed(self) -> bool:
        """Whether its repetition penalty forgets."""
        return self.repetition_penalty != 1.0 and self.repeat_last_n > 0

    @property
    def remembers(self) -> bool:
        """Whether the order of what was said makes a difference."""
        several = any(len(word) > 1 for word in self.token_rules.banned)
        return self.dry_multiplier > 0 or self.windowed or several

    @property
    def reworked(self) -> bool:
        """Whether what was said changes its logits."""
        return self.penalised or self.remembers

    @property
    def shaped(self) -> bool:
        """Whether more decides what is drawn than temperature, top_k, top_p and min_p."""
        return self.typical_p < 1 or self.top_n_sigma > 0 or self.xtc_probability > 0


def _check(ok: bool, name: str, rule: str, value: object) -> None:
    if not ok:
        raise RequestError(f"{name} must be {rule}, not {value!r}.", param=name)


def _real(name: str, value: object) -> float:
    bound = BOUNDS[name]
    good = isinstance(value, int | float) and not isinstance(value, bool)
    good = good and bound.low <= value <= bound.high  # type: ignore[operator]
    _check(good, name, bound.rule, value)
    return float(value)  # type: ignore[arg-type]


def _whole(name: str, value: object, bound: Bound | None = None) -> int:
    bound = bound or BOUNDS[name]
    good = isinstance(value, int) and not isinstance(value, bool)
    good = good and bound.low <= value <= bound.high  # type: ignore[operator]
    _check(good, name, bound.rule, value)
    return int(value)  # type: ignore[call-overload]


def _ids(name: str, ids: Sequence[int], vocab: int) -> tuple[int, ...]:
    bound = Bound(0, vocab - 1, f"token ids below {vocab}")
    _check(isinstance(ids, Sequence), name, "a list", ids)
    return tuple(_whole(name, token, bound) for token in ids)


def _stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    _check(stop is None or isinstance(stop, Sequence), "stop", "a string or a list", stop)
    stops = () if stop is None else (stop,) if isinstance(stop, str) else tuple(stop)
    _check(len(stops) <= MAX_STOPS, "stop", f"at most {MAX_STOPS} strings", len(stops))
    for text in stops:
        _check(isinstance(text, str) and text != "", "stop", "non-empty strings", text)
    return stops


def _bias(bias: Mapping[Any, float] | None, vocab: int) -> tuple[tuple[int, float], ...]:
    name, bias = "logit_bias", {} if bias is None else bias
    _check(isinstance(bias, Mapping), name, "an object", bias)
    # JSON has string keys only.
    keys = [int(key) if isinstance(key, str) and key.isdecimal() else key for key in bias]
    values = [_real(name, value) for value in bias.values()]
    return tuple(zip(_ids(name, keys, vocab), values, strict=True))


def _texts(name: str, texts: Sequence[str] | None, most: int) -> None:
    good = texts is None or (isinstance(texts, Sequence) and not isinstance(texts, str))
    _check(good, name, "a list of strings", texts)
    _check(len(texts or ()) <= most, name, f"at most {most} strings", len(texts or ()))
    for text in texts or ():
        good = isinstance(text, str) and 1 <= len(text) <= LONGEST_WORD
        _check(good, name, f"strings of 1 to {LONGEST_WORD} characters", text)


def _flag(name: str, value: object) -> bool:
    _check(isinstance(value, bool), name, "true or false", value)
    return bool(value)


def _allowed(params: SamplingParams, vocab: int, held: frozenset[int]) -> tuple[int, ...]:
    """held: ids that may not be chosen at first."""
    if params.allowed_token_ids is None:
        return ()
    name, ids = "allowed_token_ids", _ids("allowed_token_ids", params.allowed_token_ids, vocab)
    _check(bool(ids), name, "one token id or more", ids)
    enough = "ids of which some do not end the reply, where it has min_tokens"
    _check(not held.issuperset(ids), name, enough, ids[:8])
    return tuple(sorted(set(ids)))


def with_token_rules(decoding: Decoding, rules: TokenRules) -> Decoding:
    """RequestError if they leave nothing to choose."""
    banned = {word[0] for word in rules.banned if len(word) == 1}
    if decoding.allowed_ids and banned.issuperset(decoding.allowed_ids):
        raise RequestError("bad_words must leave some of allowed_token_ids.", param="bad_words")
    return replace(decoding, token_rules=rules)


def choices(params: SamplingParams) -> int:
    return _whole("n", params.n)


def resolve(
    params: SamplingParams,
    defaults: GenerationDefaults,
    *,
    vocab: int,
    end_ids: frozenset[int],
    max_tokens: int | None = None,
) -> Decoding:
    """Request first, then the model's generation config, then the library default (B31).

    max_tokens: of a reply for which neither names a limit, instead of the library's.
    """
    last = GenerationDefaults(max_tokens=max_tokens).over(LIBRARY_DEFAULTS)
    filled = defaults.over(last)

    def pick(name: str) -> Any:
        requested = getattr(params, name)
        return getattr(filled, name) if requested is None else requested

    stop_ids = frozenset(_ids("stop_token_ids", params.stop_token_ids or (), vocab))
    ends = stop_ids if params.ignore_eos else end_ids | stop_ids
    min_tokens = _whole("min_tokens", params.min_tokens)
    banned_early = ends if min_tokens else frozenset()
    _texts("bad_words", params.bad_words, MAX_BAD_WORDS)
    _texts("dry_sequence_breakers", params.dry_sequence_breakers, MAX_BREAKERS)
    _flag("skip_special_tokens", params.skip_special_tokens)
    repeat_last_n = _whole("repeat_last_n", params.repeat_last_n)
    repetition = _real("repetition_penalty", pick("repetition_penalty"))
    dry_last_n = _whole("dry_penalty_last_n", params.dry_penalty_last_n)
    multiplier = _real("dry_multiplier", params.dry_multiplier)
    return Decoding(
        temperature=_real("temperature", pick("temperature")),
        top_p=_real("top_p", pick("top_p")),
        top_k=max(0, _whole("top_k", pick("top_k"))),
        min_p=_real("min_p", pick("min_p")),
        typical_p=_real("typical_p", params.typical_p),
        top_n_sigma=max(0.0, _real("top_n_sigma", params.top_n_sigma)),
        xtc_probability=_real("xtc_probability", params.xtc_probability),
        xtc_threshold=_real("xtc_threshold", params.xtc_threshold),
        dry_multiplier=multiplier if dry_last_n else 0.0,
        dry_base=_real("dry_base", params.dry_base),
        dry_allowed_length=_whole("dry_allowed_length", params.dry_allowed_length),
        dry_penalty_last_n=dry_last_n,
        repetition_penalty=repetition if repeat_last_n else 1.0,
        repeat_last_n=repeat_last_n,
        presence_penalty=_real("presence_penalty", params.presence_penalty),
        frequency_penalty=_real("frequency_penalty", params.frequency_penalty),
        logit_bias=_bias(params.logit_bias, vocab),
        seed=secrets.randbits(63) if pick("seed") is None else _whole("seed", pick("seed")),
        max_tokens=_whole("max_tokens", pick("max_tokens")),
        min_tokens=min_tokens,
        end_ids=ends,
        banned_early=banned_early,
        allowed_ids=_allowed(params, vocab, banned_early),
        stops=_stops(params.stop),
        include_stop=_flag("include_stop_str_in_output", params.include_stop_str_in_output),
        speculate=_flag("speculate", params.speculate),
        logprobs=params.logprobs
        if params.logprobs is None
        else _whole("logprobs", params.logprobs, Bound(0, vocab, f"between 0 and {vocab}")),
        prompt_logprobs=params.prompt_logprobs
        if params.prompt_logprobs is None
        else _whole("prompt_logprobs", params.prompt_logprobs, Bound(0, vocab, f"0 to {vocab}")),
    )
