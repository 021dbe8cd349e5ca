"""What is read from disk belongs where it was, though the tree has changed meanwhile (B42, B46)."""

import dataclasses
import logging
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from bushel.cache.prefix.disk.folder import Folder
from bushel.core import Prepared
from bushel.llm import Handle
from tests.depth import one_in

from .caching_llm import _PARAMS, Serving, _answer, _submit, cold, words
from .held_reads import held_reads

# Attention alone, with latent keys, and beside a vision tower: nothing but edges is kept of them.
FAMILIES = ("llama", "deepseek_v3", "qwen2_5_vl")
HEAD, TAIL = words(10, 1), words(100, 2)
KNOWN = HEAD + TAIL
CONTINUED = HEAD + TAIL[:50] + words(3, 3)  # waits for its file
PARTING = HEAD + words(30, 4)  # cuts what is read in two
OTHER = words(130, 5)  # takes the room of the upper half
ROOM = 135  # tokens


def per_token(serving: Serving) -> int:
    stats = serving.llm.cache_stats()
    return int(stats["edge_bytes"] // stats["tokens"])


def send(serving: Serving, prompt: tuple[int, ...], *, whole: bool = False) -> Handle:
    """whole: it looks at nothing that is kept, because all of it has to be run."""
    params = dataclasses.replace(_PARAMS, prompt_logprobs=0) if whole else _PARAMS
    return _submit(serving.llm, Prepared(prompt), "", params)


def finish(serving: Serving, handle: Handle) -> None:
    while not handle.done:
        serving.llm.step()


def is_right(serving: Serving, handle: Handle, prompt: tuple[int, ...]) -> bool:
    return _answer(handle).close_to(cold(serving.name, Prepared(prompt)), serving.name)


@pytest.mark.parametrize("family", one_in(2, FAMILIES))
def test_a_prompt_that_waits_for_its_file_is_answered_as_ever(family: str, tmp_path: Path) -> None:
    """Whoever parts from it meanwhile, and whatever has to make room. B42."""
    with Serving(family, cache_dir=str(tmp_path)) as serving:
        serving.ask(KNOWN)
        limit = ROOM * per_token(serving)
    options = {"cache_dir": str(tmp_path), "cache_memory": limit}
    with held_reads() as go, Serving(family, **options) as serving:
        waiting = send(serving, CONTINUED)
        for prompt in (PARTING, OTHER):
            finish(serving, send(serving, prompt, whole=True))
        assert serving.llm.cache_stats()["evicted"] >= 2
        assert not waiting.done
        go.set()
        finish(serving, waiting)
        right = [is_right(serving, waiting, CONTINUED)]
        again = [send(serving, prompt) for prompt in (CONTINUED, PARTING, KNOWN)]
        for handle, prompt in zip(again, (CONTINUED, PARTING, KNOWN), strict=True):
            finish(serving, handle)
            right.append(is_right(serving, handle, prompt))
        assert right == [True] * 4
        assert waiting.output.usage.cached_tokens == 60
        serving.llm.check_integrity()
    with Serving(family, cache_dir=str(tmp_path)) as serving:
        for prompt in (CONTINUED, PARTING, KNOWN):
            serving.ask(prompt)


def test_a_file_of_other_tokens_than_its_place_has_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever put it there, the prompt is computed. B43, B46."""
    read = Folder.read

    def other(folder: Folder, name: str) -> Any:
        entry, arrays = read(folder, name)
        return dataclasses.replace(entry, key=entry.key + 1), arrays

    with Serving("llama", cache_dir=str(tmp_path)) as serving:
        serving.ask(KNOWN)
    caplog.set_level(logging.WARNING)
    with patch.object(Folder, "read", other), Serving("llama", cache_dir=str(tmp_path)) as serving:
        assert serving.ask(CONTINUED).cached == 0
    assert "its tokens are not those of its place" in caplog.text
    with Serving("llama", cache_dir=str(tmp_path)) as serving:  # the control: what replaced it
        assert serving.ask(CONTINUED).cached == len(CONTINUED) - 1
