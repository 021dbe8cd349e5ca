"""Gemma 4 unified: only prompts that show something have to run in one piece.

Asked without a prompt, the library takes it for one with images; asked with its ids, it takes a
text that has an image token's number in it for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any


def install(network: Any, config: Mapping[str, Any]) -> None:
    network.__class__ = _by_token_types(network.__class__)


@cache
def _by_token_types(library: Any) -> Any:
    class ByTokenTypes(library):
        __module__ = library.__module__  # by which families are known

        def _should_disable_chunked_prefill(self, input_ids: Any = None, **kwargs: Any) -> bool:
            if kwargs.get("mm_token_type_ids") is None:
                return False
            return bool(super()._should_disable_chunked_prefill(input_ids, **kwargs))

    return ByTokenTypes
