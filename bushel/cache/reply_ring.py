"""A whole prompt, and a ring of the last tokens of the reply (Unlimited-OCR).

prompt             reply, in a ring of four
a b c d e f g | 5 6 3 4        token 7 goes where 3 is; the prompt stays

What a reply wrote has seen less of it than the same tokens in a prompt would: nothing of it is
kept for prompts that go on from there.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx

from bushel.cache.layer_kind import Layer
from bushel.cache.opaque import CopiedWhole
from bushel.cache.row_list import ByRow


class ReplyRing(ByRow, CopiedWhole):
    name = "reply ring"

    def single_arrays(self, single: Layer) -> Iterator[mx.array]:
        if single.keys is not None:
            yield from (single.keys, single.values)
