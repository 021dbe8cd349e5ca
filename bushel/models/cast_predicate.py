"""Which weights of a network may be cast to a narrower format; the others are told by the library.

It has the predicate in three forms: a property that returns it, a method that does (kimi_vl), and
a property that raises (kimi_k25, which calls DeepSeek's property as if it were a method).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Predicate = Callable[[str], bool]


def cast_predicate(network: Any) -> Predicate:
    """Of the whole network, or of its language model; true of every path where neither has one."""
    for part in (network, getattr(network, "language_model", network)):
        try:
            predicate = getattr(part, "cast_predicate", None)
        except TypeError:
            return _all_but_routing
        if predicate is not None:
            takes_a_path = bool(inspect.signature(predicate).parameters)
            return predicate if takes_a_path else predicate()
    return lambda _: True


def _all_but_routing(path: str) -> bool:
    """As DeepSeek V3's, whose layers these are: a bias moves the choice of experts by little."""
    return "e_score_correction_bias" not in path
