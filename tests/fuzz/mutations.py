"""Faults that were once in the code, put back on purpose: a run has to find them."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from tests.prefix.stale_load_mutation import put_back

MUTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "none": nullcontext,
    "old-load": put_back,
}
