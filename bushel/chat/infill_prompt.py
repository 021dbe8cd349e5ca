"""Fill in the middle: a prompt of what comes before and behind the reply, for models that know it.

    <|fim_prefix|>before<|fim_suffix|>behind<|fim_middle|>     the reply goes on from here

Which tokens a model has for this tells its family; those are the ones it was trained with.
"""

from __future__ import annotations

from dataclasses import dataclass

from bushel.core import RequestError
from bushel.models import Preparer


@dataclass(frozen=True)
class InfillTokens:
    """suffix_first: the text behind comes first, and the reply follows the one before it."""

    prefix: str
    suffix: str
    middle: str = ""
    suffix_first: bool = False


# ruff: noqa: RUF001
_FAMILIES = (
    InfillTokens("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen, CodeGemma
    InfillTokens("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    InfillTokens("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    InfillTokens("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    InfillTokens("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),  # GLM
    InfillTokens("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    InfillTokens("[PREFIX]", "[SUFFIX]", suffix_first=True),  # Codestral
)


# What such a model may write behind the middle, where its end tokens are those of conversations.
_ENDS = (
    *("▁<EOT>", "<EOT>", "<|file_sep|>", "<file_sep>", "<|fim_pad|>", "<fim_pad>"),
    *("<|endoftext|>", "<|repo_name|>", "<repo_name>"),
)


def infill_ends(host: Preparer) -> frozenset[int]:
    """Tokens that end a reply which fills in the middle; none where a model cannot do that."""
    if (family := _family(host)) is None:
        return frozenset()
    vocabulary = host.tokenizer.hf.get_vocab()
    own = (family.prefix, family.suffix, family.middle)
    return frozenset(vocabulary[name] for name in (*_ENDS, *own) if name in vocabulary)


def _family(host: Preparer) -> InfillTokens | None:
    vocabulary = host.tokenizer.hf.get_vocab()
    for family in _FAMILIES:
        names = (family.prefix, family.suffix, family.middle)
        if all(name in vocabulary for name in names if name):
            return family
    return None


def infill_ids(host: Preparer, before: str, behind: str) -> tuple[int, ...]:
    """RequestError if the model has no tokens for it."""
    if (family := _family(host)) is not None:
        return _ids(host, family, before, behind)
    raise RequestError(
        f"suffix is not supported by {host.name}: its tokenizer has no tokens to fill in the "
        "middle with, such as <|fim_prefix|>.",
        code="unsupported_field",
        param="suffix",
    )


def _ids(host: Preparer, family: InfillTokens, before: str, behind: str) -> tuple[int, ...]:
    vocabulary = host.tokenizer.hf.get_vocab()

    def marked(name: str, text: str = "") -> list[int]:
        text_ids = host.tokenizer.encode(text, add_special_tokens=False) if text else []
        return [vocabulary[name], *text_ids]

    parts = [marked(family.prefix, before), marked(family.suffix, behind)]
    if family.suffix_first:
        parts.reverse()
    if family.middle:
        parts.append(marked(family.middle))
    begin = host.tokenizer.hf.bos_token_id
    whole = host.tokenizer.encode("a", add_special_tokens=True)
    first = [begin] if begin is not None and whole[:1] == [begin] else []
    return (*first, *(token for part in parts for token in part))
