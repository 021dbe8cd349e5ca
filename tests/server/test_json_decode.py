"""Bodies cut into slices are what they are in one piece, and are counted before they are built."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.server.errors import ApiError
from bushel.server.http import json_decode
from bushel.server.http.json_decode import decode, outline
from bushel.server.options import Limits
from tests.depth import some

LIMITS = Limits()
texts = st.text(st.sampled_from('a"\\[]{},:.eE \n\té\N{GRINNING FACE}'), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)
written = st.builds(
    lambda value, ascii, space: json.dumps(value, ensure_ascii=ascii, indent=space).encode(),
    values, st.booleans(), st.sampled_from([None, 0, 3]),
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _small_slices() -> Iterator[None]:
    with mock.patch.multiple(json_decode, _SLICE=30, _LOOK=7):
        yield


def counts(value: Any) -> tuple[int, int, int]:
    """Lists and objects, keys, and elements."""
    if isinstance(value, dict | list):
        inside = [counts(it) for it in (value.values() if isinstance(value, dict) else value)]
        lists, keys, elements = map(sum, zip((0, 0, 0), *inside, strict=True))
        named = len(value) if isinstance(value, dict) else 0
        return lists + 1, keys + named, elements + len(value)
    return 0, 0, 0


@settings(max_examples=some(300))
@given(written)
def test_slices_add_up_to_the_whole_and_counts_are_right(data: bytes) -> None:
    value = msgspec.json.decode(data)
    assert decode(data, LIMITS) == value
    found = outline(data, LIMITS)
    lists, keys, elements = counts(value)
    assert (found.lists, found.keys) == (lists, keys)
    assert elements <= found.values <= lists + elements


@settings(max_examples=some(300))
@given(written, st.data())
def test_what_is_broken_is_refused_in_slices_as_it_is_in_one_piece(
    data: bytes, draw: st.DataObject
) -> None:
    at = draw.draw(st.integers(0, len(data)))
    piece = draw.draw(st.sampled_from([b"", b",", b"]", b'"', b"\\", b"1", b"[", b"x", b" "]))
    broken = data[:at] + piece + data[at + draw.draw(st.integers(0, 2)) :]
    assert slices(broken) == in_one_piece(broken)


def in_one_piece(data: bytes) -> Any:
    with mock.patch.object(json_decode, "_SLICE", 1 << 16):
        return slices(data)


def slices(data: bytes) -> Any:
    """What is made of it; the error's code if nothing is."""
    try:
        return decode(data, LIMITS)
    except ApiError as error:
        return error.code


@pytest.mark.parametrize(
    ("data", "limit"),
    [
        (b"[" + b"1," * 100 + b"1]", "values"),
        (b"[" + b"[]," * 100 + b"[]]", "lists"),
        (b'{"a":1' + b',"a":1' * 100 + b"}", "keys"),
        (b"[" + b"1e5," * 100 + b"1]", "fractions"),
        (b"[" + b"1.5," * 100 + b"1]", "fractions"),
    ],
)
def test_each_cap_is_a_413_and_what_is_below_it_is_fine(data: bytes, limit: str) -> None:
    with pytest.raises(ApiError) as refused:
        decode(data, replace(LIMITS, **{limit: 99}))
    assert (refused.value.status, refused.value.code) == (413, "body_too_large")
    assert decode(data, LIMITS) == msgspec.json.decode(data)
    # What a string says does not count.
    said = json.dumps({"text": data.decode()}).encode()
    assert decode(said, replace(LIMITS, **{limit: 99})) == {"text": data.decode()}


def test_long_texts_have_a_bound_and_pictures_do_not() -> None:
    limits = replace(LIMITS, text_bytes=1000)
    assert decode(b'["' + b"A" * 5000 + b'"]', limits) == ["A" * 5000]
    for text in ("é" * 600, "a\n" * 600):
        with pytest.raises(ApiError) as refused:
            decode(json.dumps([text]).encode(), limits)
        assert refused.value.status == 413


@pytest.mark.parametrize("depth", [1, 5])
def test_depth_is_the_same_in_slices(depth: int) -> None:
    limits = replace(LIMITS, depth=depth)
    good = b"[" * depth + b'"' + b"x" * 50 + b'"' + b"]" * depth
    assert decode(good, limits) == msgspec.json.decode(good)
    with pytest.raises(ApiError) as refused:
        decode(b"[" + good + b"]", limits)
    assert "nested deeper" in refused.value.message
