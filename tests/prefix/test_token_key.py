"""Keys of prompts: the same state is never found for other tokens or other pictures (B44)."""

import hashlib
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bushel.cache.prefix.token_key import agree, key_of
from bushel.core import Media, Prepared

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=30)


def digest(what: object) -> str:
    return hashlib.sha256(str(what).encode()).hexdigest()


def shown(ids: list[int], start: int, end: int, name: str) -> np.ndarray:
    return key_of(Prepared(tuple(ids), media=(Media(start, end, name),)))


@given(IDS, IDS)
def test_keys_agree_as_far_as_their_tokens_do(one: list[int], other: list[int]) -> None:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    keys = key_of(Prepared(tuple(one))), key_of(Prepared(tuple(other)))
    assert agree(*keys) == agree(*keys[::-1]) == same


def test_agreeing_on_every_pair_of_short_keys() -> None:
    short = [it for length in range(4) for it in product(range(2), repeat=length)]
    for one, other in product(short, short):
        pairs = zip(one, other, strict=False)
        want = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
        assert agree(np.array(one, np.int64), np.array(other, np.int64)) == want


@given(IDS, IDS)
def test_a_reply_is_keyed_like_a_prompt_that_has_it(prompt: list[int], reply: list[int]) -> None:
    whole = key_of(Prepared((*prompt, *reply)))
    assert key_of(Prepared(tuple(prompt)), reply).tolist() == whole.tolist()


@given(st.integers(1, 9), st.integers(0, 5), st.integers(0, 5))
def test_pictures_share_nothing_unless_they_are_the_same(
    width: int, before: int, after: int
) -> None:
    """Prompts agree up to a picture that differs, and beyond one that does not. B44."""
    ids = [*range(before), *[77] * width, *range(after)]
    one, again, other = (shown(ids, before, before + width, digest(it)) for it in (1, 1, 2))
    assert agree(one, again) == len(ids)
    assert agree(one, other) == before
    assert agree(one, key_of(Prepared(tuple(ids)))) == before
    assert (one[before : before + width] < 0).all()
    assert one[:before].tolist() == ids[:before]
    assert one[before + width :].tolist() == ids[before + width :]


def test_a_difference_in_any_word_of_a_digest_shows_within_four_tokens() -> None:
    name = digest("picture")
    for at in (0, 16, 32, 48):  # the first hex digit of each word
        changed = name[:at] + ("0" if name[at] != "0" else "1") + name[at + 1 :]
        assert agree(shown([7] * 4, 0, 4, name), shown([7] * 4, 0, 4, changed)) == at // 16
