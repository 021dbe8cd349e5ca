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
    "repetition_penalty": Bound(1e-3, 1e3, "positive"),
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
    stop, stop_token_ids: what ends it, and is not shown. n: choices, that share the prompt.
    logprobs, prompt_logprobs: so many likeliest tokens beside each one.

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
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None


SAMPLING_NAMES = frozenset(field.name for field in fields(SamplingParams))


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
    return SamplingParams(**given)


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
    return Decoding(
        temperature=_real("temperature", pick("temperature")),
        top_p=_real("top_p", pick("top_p")),
        top_k=max(0, _whole("top_k", pick("top_k"))),
        min_p=_real("min_p", pick("min_p")),
        repetition_penalty=_real("repetition_penalty", pick("repetition_penalty")),
        presence_penalty=_real("presence_penalty", params.presence_penalty),
        frequency_penalty=_real("frequency_penalty", params.frequency_penalty),
        logit_bias=_bias(params.logit_bias, vocab),
        seed=secrets.randbits(63) if pick("seed") is None else _whole("seed", pick("seed")),
        max_tokens=_whole("max_tokens", pick("max_tokens")),
        min_tokens=min_tokens,
        end_ids=ends,
        banned_early=ends if min_tokens else frozenset(),
        stops=_stops(params.stop),
        logprobs=params.logprobs
        if params.logprobs is None
        else _whole("logprobs", params.logprobs, Bound(0, vocab, f"between 0 and {vocab}")),
        prompt_logprobs=params.prompt_logprobs
        if params.prompt_logprobs is None
        else _whole("prompt_logprobs", params.prompt_logprobs, Bound(0, vocab, f"0 to {vocab}")),
    )
