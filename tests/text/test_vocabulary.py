"""A model's tokens as text: by parts as in one go."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel

from bushel.core.options import ModelInfo
from bushel.text.vocabulary import Vocabulary
from tests.depth import some

PIECES = [*sorted(ByteLevel.alphabet()), "Ġthe", "Ġfox", "âĤ¬", "<s>", "\ufffd"]


def tokenizer(decoder: decoders.Decoder) -> Tokenizer:
    made = Tokenizer(models.BPE({piece: at for at, piece in enumerate(PIECES)}, []))
    made.decoder = decoder
    made.add_special_tokens(["<s>"])
    return made


def vocabulary(made: Tokenizer) -> Vocabulary:
    info = ModelInfo("m", "", len(PIECES), None, frozenset(), tokenizer=made.to_str())
    return Vocabulary(info)


IDS = st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=6)
BYTES = tokenizer(decoders.ByteLevel())
SPACED = tokenizer(decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]))


@pytest.mark.parametrize("made", [BYTES, SPACED], ids=["bytes", "stripped"])
def test_a_text_is_what_the_library_makes_of_all_its_tokens(made: Tokenizer) -> None:
    words = vocabulary(made)

    @settings(max_examples=some(300))
    @given(IDS)
    def same(ids: list[int]) -> None:
        assert words.decode(ids) == made.decode(ids, skip_special_tokens=True)

    same()


def test_characters_of_several_tokens_need_all_of_them() -> None:
    """The control: what each token says by itself is not the text."""
    ids = [PIECES.index(piece) for piece in "âĤ¬"]
    assert vocabulary(BYTES).decode(ids) == "€"
    assert "".join(vocabulary(BYTES).decode([token]) for token in ids) != "€"
