"""What a flag's words mean: numbers, sizes, times, names, JSON and files, each checked by its rule.

A function takes the word as it was written, and returns its value or raises ArgumentTypeError with
the rule.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from bushel.core import GenerationDefaults
from bushel.core.options import DRAFTERS, speculates_by
from bushel.core.params import BOUNDS

_SIZE = re.compile(r"([0-9]*\.?[0-9]+) ?([KMGT]i?B|)", re.IGNORECASE)
_UNITS = {
    **{"": 10**9, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40},
}
_DURATION = re.compile(r"(-?[0-9]*\.?[0-9]+)([smh]?)")
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600}
# As vLLM writes lengths: k is a thousand, K is 1024.
_TOKENS = re.compile(r"([0-9]*\.?[0-9]+)([kKmM]?)")
_THOUSANDS = {"": 1, "k": 10**3, "K": 1 << 10, "m": 10**6, "M": 1 << 20}
_MOST_CONTEXT = 1 << 40
_OWN = ("auto", "-1", "0")  # words of other servers for the model's own
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s?#]+")
HOST = re.compile(r"[A-Za-z0-9.:_%\[\]-]+")
DOMAIN = re.compile(rf"(?:\*\.)?{HOST.pattern}")
HOSTS = re.compile(rf"\*|{DOMAIN.pattern}")
_MEDIA = {"image": "most_images", "video": "most_videos"}
_MOST_TEMPLATE = 1 << 20  # bytes; real ones have up to 20,000
# What vLLM itself does where no generation config is read.
_NEUTRAL = GenerationDefaults(temperature=1.0)


def _range(low: float, high: float | None) -> str:
    return f"{low:g} or more" if high is None else f"between {low:g} and {high:g}"


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            rule = _range(low, high)
            raise argparse.ArgumentTypeError(f"must be a whole number, {rule}, not {text!r}")
        return value

    return read


def real(low: float, high: float | None = None) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value and (high is None or value <= high)):
            rule = _range(low, high)
            raise argparse.ArgumentTypeError(f"must be a number, {rule}, not {text!r}")
        return value

    return read


def sampled(name: str) -> Callable[[str], float]:
    """A sampling parameter's value."""
    bound = BOUNDS[name]
    if bound.whole:
        return whole(int(bound.low), int(bound.high))
    return real(bound.low, bound.high)


def scaled_bytes(unit: int, low: float) -> Callable[[str], int]:
    read = real(low, 1e6)
    return lambda text: int(read(text) * unit)


def size(text: str) -> int:
    """Like the flags whose names end with -gb, and with other units as well."""
    match = _SIZE.fullmatch(text.strip())
    size = 0 if match is None else int(float(match[1]) * _UNITS[match[2].lower()])
    if not 10**6 <= size <= 10**15:
        rule = "a size of 1 MB or more such as 4 (which is GB), 4GB or 512MB"
        raise argparse.ArgumentTypeError(f"must be {rule}, not {text!r}")
    return size


class OneOf:
    """Of these words the value. choices: what shells complete. fold: capitals do not matter."""

    def __init__(self, table: Mapping[str, Any], *, fold: bool = False):
        self._table = table
        self._fold = fold
        self.choices = tuple(table)

    def __call__(self, text: str) -> Any:
        text = text.lower() if self._fold else text
        if text not in self._table:
            rule = f"must be one of {', '.join(self._table)}"
            raise argparse.ArgumentTypeError(f"{rule}, not {text!r}")
        return self._table[text]


def shaped(form: re.Pattern[str], rule: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if form.fullmatch(text) is None:
            raise argparse.ArgumentTypeError(f"must be {rule}, not {text!r}")
        return text

    return read


def duration(text: str) -> float:
    """Seconds; as Ollama has it, a negative one means never."""
    if text == "never":
        return math.inf
    match = _DURATION.fullmatch(text)
    if match is None:
        rule = "seconds, or a time such as 90s, 10m, 2h or never"
        raise argparse.ArgumentTypeError(f"must be {rule}, not {text!r}")
    seconds = float(match[1]) * _TIMES[match[2]]
    return seconds if seconds >= 0 else math.inf


def alias(text: str) -> tuple[str, str]:
    pattern, _, name = text.partition("=")
    if not pattern or not name:
        raise argparse.ArgumentTypeError(f"must be PATTERN=NAME, not {text!r}")
    return pattern, name


def folder(text: str) -> str:
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"must be a directory, not {text!r}")
    return os.path.realpath(text)


def _existing(path: str) -> str:
    """The path itself, or the first above it that is there."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def place(text: str) -> str:
    path = os.path.abspath(os.path.expanduser(text))
    there = _existing(path)
    if not (text and os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)):
        raise argparse.ArgumentTypeError(f"must be a directory that can be used, not {text!r}")
    return path


def unless(word: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    """None for a word by which other servers mean that nothing is set."""
    return lambda text: None if text == word else read(text)


def context_tokens(text: str) -> int | None:
    """A number of tokens; None: as the model has it."""
    if text.lower() in _OWN:
        return None
    match = _TOKENS.fullmatch(text)
    tokens = 0 if match is None else int(float(match[1]) * _THOUSANDS[match[2]])
    if not 1 <= tokens <= _MOST_CONTEXT:
        rule = "a number of tokens such as 8192, 32k (32,000) or 32K (32,768), or auto"
        raise argparse.ArgumentTypeError(f"must be {rule}, not {text!r}")
    return tokens


def drafter(text: str) -> str:
    if not speculates_by(text):
        rule = f"must be one of {', '.join(DRAFTERS)}, a directory or a hub id"
        raise argparse.ArgumentTypeError(f"{rule}, not {text!r}")
    return text


def speculative_method(text: str) -> str:
    """vLLM's words: ngram, and mtp with or without the name of a family."""
    if text in ("ngram", "ngram_gpu"):
        return "lookup"
    if text == "mtp" or text.endswith("_mtp"):
        return "mtp"
    raise argparse.ArgumentTypeError(f"must be ngram or mtp, not {text[:100]!r}")


def speculative_config(text: str) -> str:
    """As vLLM has it: a method, or a draft model. How deep drafts go is each reply's own affair."""
    given = json_object(text)
    method, model = given.get("method"), given.get("model")
    if isinstance(model, str) and method in (None, "draft_model"):
        return drafter(model)
    return speculative_method(str(method))


def json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object, not {text[:100]!r}")
    return value


def origins(text: str) -> list[str]:
    """Several at once: a JSON list, as vLLM has it, or words between commas, as mlx-lm has it."""
    try:
        value = json.loads(text) if text.startswith("[") else text.split(",")
    except ValueError:
        value = None
    read = shaped(ORIGIN, "origins such as http://localhost:3000, or *")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise argparse.ArgumentTypeError(f"must be a list of origins, not {text[:100]!r}")
    return [read(item.strip().rstrip("/")) for item in value]


def media_limits(text: str) -> dict[str, int]:
    """`{"image": 4, "video": 1}` or image=4,video=1, as limits of `MediaRules`. A kind may have an
    object with a count, as vLLM writes what it is to make room for.
    """
    given = json_object(text) if text.startswith("{") else _assigned(text)
    limits: dict[str, int] = {}
    for kind, value in given.items():
        count = value.get("count") if isinstance(value, dict) else value
        good = isinstance(count, int) and not isinstance(count, bool) and count >= 0
        if kind not in (*_MEDIA, "audio") or not good:
            rule = 'must say how many of image and video, such as {"image": 4, "video": 1}'
            raise argparse.ArgumentTypeError(f"{rule}, not {text[:100]!r}")
        if kind in _MEDIA:  # audio is refused wherever it comes
            limits[_MEDIA[kind]] = int(count)  # type: ignore[arg-type]
    return limits


def _assigned(text: str) -> dict[str, Any]:
    parts = (part.partition("=") for part in text.split(",") if part)
    return {kind.strip(): int(n) if n.strip().isdecimal() else None for kind, _, n in parts}


def chat_template(text: str) -> str:
    """A template: of the file that is named so, or the words themselves if they are one."""
    path = os.path.expanduser(text)
    if os.path.isfile(path):
        return template_file(path)
    if "{{" in text or "{%" in text:
        return text
    raise argparse.ArgumentTypeError(f"must be a file or a template itself, not {text[:100]!r}")


def template_file(text: str) -> str:
    try:
        with open(os.path.expanduser(text), encoding="utf-8") as file:
            template = file.read(_MOST_TEMPLATE + 1)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"cannot be read: {error}") from None
    if not template.strip() or len(template) > _MOST_TEMPLATE:
        raise argparse.ArgumentTypeError(f"must be a file with a template, not {text!r}")
    return template


def generation_config(text: str) -> GenerationDefaults | None:
    """None: the checkpoint's own. vLLM's word for none of it is its own name."""
    if text == "auto":
        return None
    if text == "vllm":
        return _NEUTRAL
    path = os.path.expanduser(text)
    file = os.path.join(path, "generation_config.json") if os.path.isdir(path) else path
    try:
        with open(file, encoding="utf-8") as opened:
            config = json.load(opened)
    except (OSError, ValueError) as error:
        rule = "must be auto, vllm, or a directory with a generation_config.json"
        raise argparse.ArgumentTypeError(f"{rule}: {error}") from None
    if not isinstance(config, dict):
        raise argparse.ArgumentTypeError(f"{file} must hold a JSON object")
    return GenerationDefaults.from_config(config)


def root_path(text: str) -> str:
    """Without a slash at its end; empty: none."""
    if _ROOT_PATH.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"must be a path such as /llm, not {text!r}")
    return text.rstrip("/")
