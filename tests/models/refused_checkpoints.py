"""What every refused checkpoint has in common: one line, and nothing left behind."""

import gc
from typing import Any

import mlx.core as mx
import pytest

from bushel import LLM, ModelError

# Pages and scalars; the smallest fixture's weights are 0.6 MB.
SLACK = 16 * 1024


def settled() -> int:
    gc.collect()
    mx.synchronize()
    return mx.get_active_memory()


def assert_refused(model: str, message: str, **settings: Any) -> None:
    """One ModelError with one line, and no memory that was not in use before (B8)."""
    before = settled()
    with pytest.raises(ModelError) as raised:
        LLM(model, **settings)
    said = str(raised.value)
    del raised
    assert message in said
    assert "\n" not in said
    assert len(said) < 500
    # Not after a collection: the failed load itself has to leave nothing behind.
    mx.synchronize()
    assert mx.get_active_memory() - before < SLACK
