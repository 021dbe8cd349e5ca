"""How rows that share a batch keep their keys and values: found by trying, at load.

Pages cost nothing when rows come and go, and nobody for another's length. They need a kernel of our
own, and a model that leaves its keys to attention: both are tried on the user's device, and what
does not stand the trial is padded to the longest row, as the libraries do it.
"""

from __future__ import annotations

from bushel.cache.kinds import kind_of, unbatchable
from bushel.cache.layer_kind import Layer, LayerKind
from bushel.cache.packed_rows import packable
from bushel.cache.paged import sdpa
from bushel.cache.paged.page_pool import PagePool
from bushel.cache.paged.paged_kv import pageable
from bushel.core import ModelError
from bushel.core.options import Attention
from bushel.engine.batching_check import packing_fault, paging_fault
from bushel.models import Model, State
from bushel.models.device import ON_CPU
from bushel.models.known_families import batches_exactly, never_packs

_PADDED = "padded rows"
# Kinds that no device has in pages.
_UNPAGED = {"indexed": "pages are read whole, and not by chosen blocks"}


def _parts(layer: Layer) -> list[tuple[LayerKind, Layer]]:
    return kind_of(layer).parts(layer)


def choose_attention(model: Model, wanted: Attention) -> dict[str, str]:
    """Sets the model's way, and tells it by kind of layer; nothing if its rows share no batch.
    ModelError if pages were asked for, and do not work.
    """
    model.pages, model.whole_in_pages, model.shares_passes = None, False, False
    state = model.make_state()
    if model.single is not None or unbatchable(state) is not None:
        return {}
    parts = [part for layer in state for part in _parts(layer)]
    why = _why_padded(model, wanted, state)
    if why is not None:
        model.pages = None
    model.whole_in_pages = model.pages is not None and all(map(pageable, state))
    if all(map(packable, state)) and not never_packs(model.network):
        known = model.pages is None and batches_exactly(model.network)
        model.shares_passes = known or packing_fault(model) is None
    if model.pages is not None:
        model.pages.clear()
    if wanted == "pages" and why is not None:
        raise ModelError(f"{model.name} cannot be served with attention='pages': {why}.")
    routes: dict[str, str] = {}
    for kind, part in parts:
        if kind.name in ("kv", "quantized", "window"):
            paged = pageable(part)
            reason = f" ({why})" if paged else ""
            routes[kind.name] = "pages" if paged and why is None else _PADDED + reason
        elif kind.name in _UNPAGED:
            routes[kind.name] = f"{_PADDED} ({_UNPAGED[kind.name]})"
    return routes


def _why_padded(model: Model, wanted: Attention, state: State) -> str | None:
    if wanted == "padded":
        return "as was asked for"
    paged = sum(map(pageable, state))
    if not paged:
        return "no layer keeps plain keys and values"
    others = [part for layer in state if not pageable(layer) for part in _parts(layer)]
    if any(kind.appends for kind, _ in others):
        return "some layers keep keys and values of another kind"
    if wanted == "auto" and ON_CPU:
        return "pages are for GPUs"
    sdpa.install()
    model.pages = PagePool(paged)
    why = paging_fault(model)
    model.pages.clear()
    return why
