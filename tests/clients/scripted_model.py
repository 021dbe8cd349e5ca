"""Writes a checkpoint whose replies follow a script, for prompts that are beyond `bushel:tiny`.

It has the tokenizer and the template of `bushel:tiny`, and a network of its own
(`scripted_network.py`) that only chooses which ids come next: they pass through the real engine,
detokenizer and parsers. `bushel serve DIR --trust-remote-code` loads it like any other.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

import bushel
from tests.clients import scripted_network

CONTEXT = 262_144
TINY = Path(str(bushel.__file__)).parent / "tiny"
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
THOUGHT = "I know what comes next.\n</think>\n\n"
RESULT = "{result}"  # at the end of a script: the text of the last tool result


@dataclass(frozen=True)
class Script:
    """`say` is the reply to a prompt that contains `when`; the last script that fits is taken.

    `when` is tokenized by itself: it should begin with a space and end at a word's end.
    """

    say: str
    when: str = ""


def call(name: str, arguments: Mapping[str, Any]) -> str:
    """A tool call as the template has it."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def calling_once(name: str, arguments: Mapping[str, Any]) -> list[Script]:
    """Calls a tool once where tools are offered, and then says what the tool returned."""
    return [
        Script("A short title"),
        Script(call(name, arguments), when="<tool_call>"),  # the template's own, below the tools
        Script(f"The tool said:{RESULT}", when="<tool_response>"),
    ]


def write(path: Path, scripts: Sequence[Script], *, pause: float = 0.0) -> Path:
    """Make the checkpoint in a new directory; the first script is for prompts that fit no other.

    pause: seconds that every step waits.
    """
    path.mkdir(parents=True)
    for file in FILES:
        shutil.copy(TINY / file, path)
    tokenizer = Tokenizer.from_file(str(TINY / "tokenizer.json"))
    one = _Tokens(tokenizer)
    told = [[one.said(THOUGHT * opened + script.say) for opened in (0, 1)] for script in scripts]
    triggers = [one.ids(script.when) for script in scripts]
    length = max(len(ids) for forms in told for ids in forms)
    widest = max(map(len, triggers))
    table = [[[*ids, *[ids[-1]] * (length - len(ids))] for ids in forms] for forms in told]
    when = [[scripted_network.ANY] * (widest - len(ids)) + ids for ids in triggers]
    save_file(
        {"script": np.array(table, np.int32), "trigger": np.array(when, np.int32)},
        path / "model.safetensors",
    )
    shutil.copy(str(scripted_network.__file__), path / "scripted_network.py")
    config = {
        "model_type": "scripted",
        "model_file": "scripted_network.py",
        "vocab_size": json.loads((TINY / "config.json").read_text())["vocab_size"],
        "max_position_embeddings": CONTEXT,
        "eos_token_id": [one.id("<|im_end|>")],
        "scripts": len(scripts),
        "length": length,
        "trigger": widest,
        "header": len(one.ids("<|im_start|>assistant\n")),
        "thinking_header": len(one.ids("<|im_start|>assistant\n<think>\n")),
        "begin": one.id("<|im_start|>"),
        "end": one.id("<|im_end|>"),
        "think": one.id("<think>"),
        "result": one.id("<tool_response>"),
        "result_end": one.id("</tool_response>"),
        "pause": pause,
    }
    (path / "config.json").write_text(json.dumps(config, indent=2))
    return path


class _Tokens:
    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    def id(self, text: str) -> int:
        found = self._tokenizer.token_to_id(text)
        assert found is not None, text
        return int(found)

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def said(self, text: str) -> list[int]:
        """What is left of a script's room repeats its last id: an end, or the result."""
        if text.endswith(RESULT):
            return [*self.ids(text.removesuffix(RESULT)), scripted_network.COPY]
        return [*self.ids(text), self.id("<|im_end|>")]
