"""Modules that are changed once they have been imported, by whoever needs them."""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder):
    """Finds one module as Python does."""

    def __init__(self, name: str, change: Callable[[Any], None]):
        self._name, self._change = name, change

    def find_spec(self, name: str, path: Sequence[str] | None, _: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._change(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def change(name: str, how: Callable[[Any], None]) -> None:
    sys.meta_path.insert(0, _Finder(name, how))
