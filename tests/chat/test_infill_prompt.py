"""Prompts with a text behind the reply, in the tokens that each family has for them."""

# ruff: noqa: RUF001

from __future__ import annotations

from pathlib import Path

import pytest

from bushel.chat.infill_prompt import infill_ends
from bushel.chat.prompt import prepare
from bushel.core import RequestError
from tests.chat.structured_output.random_replies import host

BEFORE, BEHIND = "def f():\n", "\n    return x"


@pytest.mark.parametrize(
    ("special", "written"),
    [
        (
            ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
            f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{BEHIND}<|fim_middle|>",
        ),
        (
            ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
            f"<｜fim▁begin｜>{BEFORE}<｜fim▁hole｜>{BEHIND}<｜fim▁end｜>",
        ),
        (("[PREFIX]", "[SUFFIX]"), f"[SUFFIX]{BEHIND}[PREFIX]{BEFORE}"),
    ],
)
def test_the_prompt_is_as_the_model_learnt_it(
    tmp_path: Path, special: tuple[str, ...], written: str
) -> None:
    it = host(tmp_path, special)
    prepared = prepare(it, {"prompt": BEFORE, "suffix": BEHIND})
    assert it.tokenizer.hf.decode(list(prepared.ids)) == written
    assert prepared.ids.count(it.tokenizer.hf.get_vocab()[special[0]]) == 1
    known = it.tokenizer.hf.get_vocab()
    assert infill_ends(it) >= {known[token] for token in special} | {known["<|endoftext|>"]}
    nothing = prepare(it, {"prompt": BEFORE, "suffix": ""})
    assert it.tokenizer.hf.decode(list(nothing.ids)) == BEFORE


@pytest.mark.parametrize("special", [(), ("<|fim_prefix|>", "<|fim_suffix|>")])
def test_a_model_without_these_tokens_is_refused_by_name(
    tmp_path: Path, special: tuple[str, ...]
) -> None:
    it = host(tmp_path, special)
    assert infill_ends(it) == frozenset()
    with pytest.raises(RequestError, match="no tokens") as refused:
        prepare(it, {"prompt": BEFORE, "suffix": BEHIND})
    assert refused.value.param == "suffix"
