"""A GPU that fails, played on the CPU: work that is left undone, and an error that comes late.

Metal tells of a command buffer that failed when it is next asked for something, whoever asks, and
tells it once. So a planted fault here leaves zeros where a result should be, and the next call of
MLX that evaluates raises, whatever that call is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from bushel.cache import BatchState
from bushel.cache.prefix import disk_tier
from bushel.cache.prefix.kv_segment import KVSegment, SegmentLayout
from bushel.cache.ragged.ragged_caches import RaggedCache
from bushel.engine import prefill_pass
from bushel.engine.decode_batch import DecodeBatch, Verify
from bushel.engine.prefill_pass import PassRow
from bushel.models import Model

WORDS = "[METAL] Command buffer execution failed: Caused GPU Timeout Error (00000002)."
EVALUATES = ("eval", "async_eval", "synchronize")

Set = Callable[[Any, str, Any], None]  # as `setattr`, or a test's that is undone


class LateFaults:
    """moments: of what happens at `place`, counted from one, those at which the device fails."""

    def __init__(self, place: str, moments: Iterable[int], model: type[Model], set: Set = setattr):
        self._moments = frozenset(moments)
        self._count = 0
        self._set = set
        self.untold = False
        self.told = 0
        for name in EVALUATES:
            self._tell_first(name)
        getattr(self, f"_in_{place}")(model)

    def _tell_first(self, name: str) -> None:
        evaluate = getattr(mx, name)

        def telling(*args: Any) -> Any:
            if self.untold:
                self.untold, self.told = False, self.told + 1
                raise RuntimeError(WORDS)
            return evaluate(*args)

        self._set(mx, name, telling)

    @property
    def _now(self) -> bool:
        self._count += 1
        if self._count not in self._moments:
            return False
        self.untold = True
        return True

    def _after(self, owner: Any, name: str, spoil: Callable[..., Any]) -> None:
        """spoil: takes what the method returned, and its arguments; returns what is returned."""
        original = getattr(owner, name)

        def planted(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            return spoil(result, *args) if self._now else result

        self._set(owner, name, planted)

    # -- where it may happen -----------------------------------------------------------------

    def _in_chunk(self, model: type[Model]) -> None:
        def spoil(logits: mx.array, _: Any, __: Any, ___: int, ____: int, state: Any) -> mx.array:
            zero(state)
            return logits

        def spoil_all(logits: mx.array, _: Any, rows: Iterable[PassRow]) -> mx.array:
            for row in rows:
                zero(row.state)
            return logits

        self._after(model, "prefill", spoil)
        self._after(prefill_pass, "run_pass", spoil_all)

    def _in_step(self, model: type[Model]) -> None:
        def spoil(logits: mx.array, _: Any, __: Any, ___: Any, state: Any) -> mx.array:
            zero(state)
            return mx.zeros_like(logits)

        self._after(model, "forward", spoil)

    def _in_join(self, model: type[Model]) -> None:
        self._after(DecodeBatch, "join", lambda _, batch, *__: zero(batch.rows.layers))

    def _in_round(self, model: type[Model]) -> None:
        def spoil(verify: Verify, batch: DecodeBatch, *_: Any) -> Verify:
            zero(batch.rows.layers)
            return verify._replace(logits=mx.zeros_like(verify.logits))

        self._after(DecodeBatch, "verify", spoil)

    def _in_commit(self, model: type[Model]) -> None:
        """Of a round: what rows keep."""
        self._after(BatchState, "end_draft", lambda _, rows, *__: zero(rows.layers))

    def _in_kept(self, model: type[Model]) -> None:
        def spoil(made: KVSegment, layout: SegmentLayout, *_: Any) -> KVSegment:
            return KVSegment(layout, tuple(map(mx.zeros_like, made.arrays)), made.start, made.key)

        self._after(SegmentLayout, "cut", spoil)

    def _in_write(self, model: type[Model]) -> None:
        """What is copied for a file is waited for, so that it is told there."""
        original = disk_tier.to_host

        def planted(array: mx.array) -> Any:
            failed = self._now
            copied = original(mx.zeros_like(array) if failed else array)
            mx.synchronize()
            return copied

        self._set(disk_tier, "to_host", planted)


def zero(layers: Iterable[Any]) -> None:
    for layer in layers:
        if isinstance(layer, RaggedCache):
            layer.keys, layer.values = _blank(layer.keys), _blank(layer.values)
        else:
            layer.state = tree_map(_blank, layer.state)


def _blank(leaf: Any) -> Any:
    is_state = isinstance(leaf, mx.array) and leaf.ndim > 2
    return mx.zeros_like(leaf) if is_state else leaf
