"""A row is made of what is kept only if that is the state of its own tokens, all of them (B42)."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache

from bushel.cache.prefix.kv_segment import KVSegment, SegmentLayout
from bushel.core import IntegrityError

KEY = np.arange(100, 112)


def state(length: int) -> list[KVCache]:
    layer = KVCache()
    values = mx.arange(length * 4, dtype=mx.float32).reshape(1, 1, length, 4)
    layer.update_and_fetch(values, -values)
    return [layer]


LAYOUT = SegmentLayout.of(state(1))


def segments(*ends: int) -> list[KVSegment]:
    full, starts = state(len(KEY)), (0, *ends)
    pairs = zip(starts, ends, strict=False)
    return [LAYOUT.cut(full, 0, KEY, start, end) for start, end in pairs]


def hole() -> Iterator[tuple[list[KVSegment], np.ndarray]]:
    """Of a line that was split, parts are missing."""
    for gone in range(3):
        yield [it for at, it in enumerate(segments(3, 7, 12)) if at != gone], KEY
    yield segments(3, 7, 12)[1:], KEY[:9]  # enough tokens, but not from the beginning
    yield [], KEY


def overlap() -> Iterator[tuple[list[KVSegment], np.ndarray]]:
    first, second, third = segments(3, 7, 12)
    yield [first, first, second, third], KEY
    yield [*segments(7), second, third], KEY
    yield [first, second, third, *segments(12)], KEY


def others() -> Iterator[tuple[list[KVSegment], np.ndarray]]:
    """The tokens are another prompt's."""
    for at in range(len(KEY)):
        other = KEY.copy()
        other[at] += 1
        yield segments(3, 7, 12), other


def short() -> Iterator[tuple[list[KVSegment], np.ndarray]]:
    """Arrays of fewer tokens than the segment says."""
    first, second, third = segments(3, 7, 12)
    fewer = tuple(array[:, :, :-1] for array in second.arrays)
    yield [first, replace(second, arrays=fewer), third], KEY


@pytest.mark.parametrize("wrong", [hole, overlap, others, short])
def test_what_is_not_the_state_of_these_tokens_is_refused(
    wrong: Callable[[], Iterator[tuple[list[KVSegment], np.ndarray]]],
) -> None:
    for pieces, key in wrong():
        with pytest.raises(IntegrityError):
            LAYOUT.assemble(pieces, key, 20, [KVCache()])


def test_what_is_their_state_is_put_together() -> None:
    """However it was cut, and where more is kept than is wanted."""
    for ends, most in [((12,), 12), ((3, 7, 12), 12), ((3, 7, 12), 8), ((12,), 1), ((3, 12), 4)]:
        row = KVCache()
        LAYOUT.assemble(segments(*ends), KEY[:most], 20, [row])
        assert row.offset == most
        assert mx.array_equal(row.keys[:, :, :most], state(12)[0].keys[:, :, :most])
