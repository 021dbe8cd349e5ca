"""How rows that share a batch keep their keys and values: found by trying, at load.

Pages cost nothing when rows come and go, and nobody for another's length. They need a kernel of our
own, and a model that leaves its keys to attention: both are tried on the user's device, and what
does not stand the trial is padded to the longest row, as the libraries do it.
"""

from __future__ import annotations

from bushel.cache.kinds import kind_of, unbatchable
from bushel.cache.paged import sdpa
from bushel.cache.paged.paged_kv import pageable_class
from bushel.core import ModelError
from bushel.core.options import Attention
from bushel.engine.batching_check import batching_fault
from bushel.models import Model
from bushel.models.device import ON_CPU

_PADDED = "padded rows"


def choose_attention(model: Model, wanted: Attention) -> dict[str, str]:
    """Sets the model's way, and tells it by kind of layer; nothing if its rows share no batch.
    ModelError if pages were asked for, and do not work.
    """
    model.paged = False
    state = model.make_state()
    if model.single is not None or unbatchable(state) is not None:
        return {}
    kinds = [
        (kind.name, pageable_class(part))
        for layer in state
        for kind, part in kind_of(layer).parts(layer)
    ]
    why = _why_padded(model, wanted, any(paged for _, paged in kinds))
    model.paged = why is None
    if wanted == "pages" and why is not None:
        raise ModelError(f"{model.name} cannot be served with attention='pages': {why}.")
    routes: dict[str, str] = {}
    for name, paged in kinds:
        if name in ("kv", "quantized", "window"):
            reason = f" ({why})" if paged else ""
            routes[name] = "pages" if paged and model.paged else _PADDED + reason
    return routes


def _why_padded(model: Model, wanted: Attention, any_pageable: bool) -> str | None:
    if wanted == "padded":
        return "as was asked for"
    if not any_pageable:
        return "no layer keeps plain keys and values"
    if wanted == "auto" and ON_CPU:
        return "pages are for GPUs"
    sdpa.install()
    model.paged = True
    return batching_fault(model)
