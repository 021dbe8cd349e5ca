"""Checkpoints that bring a family of their own, right alone and wrong, or raising, in a batch."""

from pathlib import Path
from typing import Any

from tests.models.altered_checkpoints import copied, set_json

_FAMILY = """
import mlx.core as mx
from mlx_lm.models import llama
from mlx_lm.models.llama import ModelArgs


class Model(llama.Model):
    def __call__(self, inputs, cache=None, **rest):
        if inputs.shape[0] == 1:
            return super().__call__(inputs, cache, **rest)
        {in_a_batch}
"""

_MISPLACED = """
        kept = [layer.offset for layer in cache]
        if {when}:
            for layer in cache:
                layer.offset = mx.full(layer.offset.shape, layer.offset.max())
        found = super().__call__(inputs, cache, **rest)
        for layer, offset in zip(cache, kept):
            layer.offset = offset + inputs.shape[1]
        return found
"""

EXACT = "return super().__call__(inputs, cache, **rest)"
# As afm7: every row is placed where the longest one is, and nothing raises.
MISPLACED = _MISPLACED.format(when=True)
MISPLACED_LATE = _MISPLACED.format(when="int(cache[1].offset.max()) > 300")
RAISING = 'raise ValueError("one row at a time, please")'


def family(path: Path, in_a_batch: str, base: str = "llama", **config: Any) -> str:
    """A checkpoint with the weights of `base` and code of its own."""
    path = copied(base, path)
    set_json(path / "config.json", model_file="family.py", **config)
    (path / "family.py").write_text(_FAMILY.format(in_a_batch=in_a_batch.strip()))
    return str(path)
