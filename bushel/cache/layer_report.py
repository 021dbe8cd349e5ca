"""What a model's layers keep, class by class: what is known of each, and what it would need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bushel.cache.kinds import kind_of, unbatchable
from bushel.cache.layer_kind import Layer
from bushel.cache.opaque import Opaque
from bushel.cache.prefix.prefix_cache import cannot_restore

RECIPE = "docs/guides/new-models.md"

# Kinds in the words of whoever chose the model; one that is not here has its own name.
_WORDS = {
    "kv": "attention",
    "quantized": "attention",
    "window": "sliding window",
    "chunked": "chunked attention",
    "indexed": "sparse attention",
    "pooled": "pooled attention",
    "compressed": "compressed attention",
    "reply ring": "a prompt and a ring of the reply",
    "opaque": "of its own kind",
}
# What the libraries' own batches are made with.
_LIBRARY_BATCH = ("merge", "extend", "filter", "extract")


@dataclass(frozen=True)
class LayerReport:
    """Layers whose state is of one class. Reasons and `needs` are empty where all is well."""

    state: str  # the class; of a layer that consists of several, with theirs
    module: str  # that defines it
    layers: tuple[int, ...]  # counted from 0
    kind: str
    batches: bool  # there is a form of it that holds several rows
    batch_reason: str
    kept: str  # by token, or as snapshots; empty: not, and nothing of its prompts is reused
    kept_reason: str
    library_batch: tuple[str, ...]  # of an unknown class: what it offers of the libraries' protocol
    needs: str


def kind_word(name: str) -> str:
    return _WORDS.get(name, name)


def layer_reports(state: Sequence[Layer]) -> tuple[LayerReport, ...]:
    """Of fresh state, in the order in which the classes first come."""
    places: dict[tuple[str, str], list[int]] = {}
    for at, layer in enumerate(state):
        places.setdefault((_state_name(layer), _settings(layer)), []).append(at)
    return tuple(_report(state[layers[0]], layers) for layers in places.values())


def _report(layer: Layer, layers: list[int]) -> LayerReport:
    kind = kind_of(layer)
    batch_reason, kept_reason = unbatchable([layer]), cannot_restore([layer])
    unknown = _unknown(layer)
    by_token = all(part.appends for part, _ in kind.parts(layer))
    return LayerReport(
        state=_state_name(layer),
        module=type(layer).__module__,
        layers=tuple(layers),
        kind=kind_word(kind.name),
        batches=batch_reason is None,
        batch_reason=batch_reason or "",
        kept="" if kept_reason else "by token" if by_token else "as snapshots",
        kept_reason=kept_reason or "",
        library_batch=_offered(unknown[0]) if unknown else (),
        needs=_needs(unknown),
    )


def _state_name(layer: Layer) -> str:
    name = type(layer).__name__
    parts = getattr(layer, "caches", None)
    return f"{name}({', '.join(map(_state_name, parts))})" if parts else name


def _settings(layer: Layer) -> str:
    """What makes layers of one class differ in what can be done with them."""
    return "pinned" if getattr(layer, "keep", 0) else ""


def _unknown(layer: Layer) -> list[Layer]:
    """The states of no known kind in a layer: it, or some of those that it consists of."""
    if type(kind_of(layer)) is not Opaque:
        return []
    parts = [unknown for part in getattr(layer, "caches", ()) for unknown in _unknown(part)]
    return parts or [layer]


def _offered(layer: Layer) -> tuple[str, ...]:
    return tuple(name for name in _LIBRARY_BATCH if callable(getattr(layer, name, None)))


def _needs(unknown: Sequence[Layer]) -> str:
    if not unknown:
        return ""
    names = " and ".join(dict.fromkeys(type(layer).__name__ for layer in unknown))
    offered = _offered(unknown[0])
    batch = (
        f"the library's batch form of it ({', '.join(offered)}) may serve"
        if offered
        else "the library has no batch form of it"
    )
    return f"a kind of layer state for {names}, and {batch}: {RECIPE}"


def span(layers: Sequence[int]) -> str:
    """Layers as people write them: 0-3, 5.

    >>> span((0, 1, 2, 3, 5))
    '0-3, 5'
    """
    runs: list[list[int]] = []
    for at in layers:
        if runs and runs[-1][1] == at - 1:
            runs[-1][1] = at
        else:
            runs.append([at, at])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
