"""What an engine is started with, and what a loaded model is, as other processes know them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bushel.core.params import GenerationDefaults
from bushel.core.reply_format import ReplyFormat

Order = Literal["arrival", "shortest"]
# How rows that share a batch keep their keys and values.
Attention = Literal["auto", "pages", "padded"]
# Who guesses tokens ahead, beside a draft model, which is named as any model is.
DRAFTERS = ("auto", "off", "lookup", "mtp")
# What a model is for: it writes text, or gives texts a vector, or pairs of texts a score.
Task = Literal["generate", "embed", "score"]
MOST_DISK = 20 * 10**9  # bytes of prefixes on disk, unless someone says otherwise


def disk_room(folder: str) -> int:
    """Bytes for a folder that may not exist yet: a tenth of what is free there, or less."""
    there = Path(folder).absolute()
    while not there.exists():
        there = there.parent
    return min(MOST_DISK, shutil.disk_usage(there).free // 10)


def speculates_by(word: str) -> bool:
    """Whether it names who guesses tokens: one of DRAFTERS, a directory, or a hub id."""
    path = "/" in word or word.startswith("bushel:") or (word != "" and Path(word).is_dir())
    return path or word in DRAFTERS


@dataclass(frozen=True)
class EngineOptions:
    """`bushel.LLM` says what each one means, and takes them as its arguments."""

    model: str
    dtype: str | None = None
    max_batch: int = 32
    prefill_chunk: int = 16384
    prefix_cache: bool = True
    trust_remote_code: bool = False
    _: KW_ONLY
    max_model_len: int | None = None
    kv_bits: int | None = None
    token_gap: float = 0.5
    start_wait: float = 2.0
    order: Order = "arrival"
    attention: Attention = "auto"
    speculate: str = "auto"
    memory_limit: int | None = None
    beside: int = 0  # bytes that other processes of the server may take
    headroom: int | None = None
    self_check: bool = True
    cache_memory: int | None = None
    snapshot_every: int = 4096
    cache_kv_bits: int | None = None
    cache_dir: str | None = None
    cache_disk: int | None = None


@dataclass(frozen=True)
class ChatOptions:
    """How conversations are written for a model, and how its replies are read.

    keep_headers: leave what clients put before their system prompts. hoist: system messages in the
    middle of a conversation go to its top. tools, thinking: names of `chat.reply`'s forms that are
    used instead of those found from the model. template: instead of the checkpoint's.
    template_kwargs: its variables, where a request does not set them.
    """

    keep_headers: bool = False
    hoist: bool = False
    tools: str | None = None
    thinking: str | None = None
    template: str | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ModelInfo:
    """What must be known of a model to check a request and to write its reply."""

    name: str
    path: str
    vocab: int
    context: int | None  # longest prompt + reply
    end_ids: frozenset[int]
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    tokenizer: str | None = None  # as JSON of the tokenizers library, where it has that form
    template_options: frozenset[str] = frozenset()  # that the chat template reads
    reply_format: ReplyFormat = field(default_factory=ReplyFormat)
    task: Task = "generate"
    infill_ends: frozenset[int] = frozenset()  # what ends a reply that fills in the middle, too
    model_type: str = ""  # its architecture, as its config names it
    sees: bool = False  # images and videos
    template: str = ""  # its chat template
