"""Flags of other servers that Bushel has no setting for: what to say about each.

People keep the command lines they have. A flag for what Bushel does anyway is taken with a note;
one for what it does not do ends the command, because a setting that is silently ignored is worse
than none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

_ALWAYS = "Bushel always works this way."
_FITS = "there are no blocks to size; a request is admitted when all of it fits into memory."
_PREFIX = "needs no flag; --no-prefix-cache switches it off."
_ENTRIES = "what is kept is bounded by its size; see --cache-memory."

# Flags without a value.
NOTED = {
    "--continuous-batching": _ALWAYS,
    "--mllm": "Bushel sees what a checkpoint is; images need no flag.",
    "--use-paged-cache": "rows have pages wherever their model and device allow; /v1/status tells.",
    "--enable-chunked-prefill": _ALWAYS,
    "--enable-metrics": "metrics are always at /metrics.",
    "--enable-prefix-cache": _PREFIX,
    "--enable-prefix-caching": _PREFIX,
    "--no-memory-aware-cache": _ENTRIES,
    "--disable-log-requests": "prompts are not logged without --log-prompts.",
    "--no-enable-log-requests": "prompts are not logged without --log-prompts.",
    "--disable-uvicorn-access-log": _ALWAYS,
    "--enable-auto-tool-choice": "calls are read whenever a request offers tools.",
    "--enable-reasoning": "thoughts are always told apart from the answer.",
}

# Flags with one value.
NOTED_VALUES = {
    "--stream-interval": "Bushel sends what every step adds.",
    "--prefill-batch-size": "prompts run one at a time, in chunks; see --prefill-chunk.",
    "--completion-batch-size": "--max-num-seqs says how many replies run together.",
    "--paged-cache-block-size": _FITS,
    "--max-cache-blocks": _FITS,
    "--block-size": _FITS,
    "--prefix-cache-size": _ENTRIES,
    "--tool-call-parser": "found in the model's template; --tool-format NAME overrides it.",
    "--reasoning-parser": "found in the model's template; --thinking-format NAME overrides it.",
}

_THINKING = "requests say whether and how long a model thinks, as `enable_thinking` and so on."
_DRAFTS = "speculative decoding is not there yet."
_SEVERAL = "name several models, or a directory of them; see --keep-alive and --pin."
_ADAPTERS = "adapters are not there yet."
_CHECKPOINT = "the checkpoint's own chat template is used, with what requests say."
_KV = "use --kv-bits, or --cache-kv-bits for what is kept of prompts."
_TLS = "put a proxy with TLS in front."

REFUSED = {
    "--max-model-len": "the context is the model's own and cannot be set yet.",
    "--max-kv-size": "the context is the model's own and cannot be set yet.",
    "--gpu-memory-utilization": "use --memory-limit-gb.",
    "--tool-parser-plugin": "formats are Bushel's own; --tool-format names one.",
    "--mcp-config": "tools are the client's to run.",
    "--enable-thinking": _THINKING,
    "--default-thinking-token-budget": _THINKING,
    "--speculative-config": _DRAFTS,
    "--speculative-method": _DRAFTS,
    "--num-speculative-tokens": _DRAFTS,
    "--draft-model": _DRAFTS,
    "--enable-mtp": _DRAFTS,
    "--mtp-num-draft-tokens": _DRAFTS,
    "--mtp-optimistic": _DRAFTS,
    "--mllm-draft-model": _DRAFTS,
    "--mllm-draft-kind": _DRAFTS,
    "--mllm-draft-block-size": _DRAFTS,
    "--specprefill": "sparse prefill is not there yet.",
    "--specprefill-threshold": "sparse prefill is not there yet.",
    "--specprefill-keep-pct": "sparse prefill is not there yet.",
    "--specprefill-draft-model": "sparse prefill is not there yet.",
    "--cache-memory-percent": "use --cache-memory.",
    "--warm-prompts": "send them once; with --cache-dir that lasts.",
    "--kv-cache-dtype": _KV,
    "--kv-cache-quantization-group-size": _KV,
    "--kv-cache-min-quantize-tokens": _KV,
    "--kv-k-bits": _KV,
    "--kv-v-bits": _KV,
    "--kv-hadamard": _KV,
    "--linear-state-quantization": "recurrent state keeps the model's own precision.",
    "--linear-state-quantization-bits": "recurrent state keeps the model's own precision.",
    "--linear-state-quantization-group-size": "recurrent state keeps the model's own precision.",
    "--linear-state-bf16": "recurrent state keeps the model's own precision.",
    "--chat-template": _CHECKPOINT,
    "--default-chat-template-kwargs": _CHECKPOINT,
    "--default-presence-penalty": "penalties of this kind are the request's own.",
    "--models-config": _SEVERAL,
    "--lazy-load-model": _SEVERAL,
    "--enable-lora": _ADAPTERS,
    "--lora-modules": _ADAPTERS,
    "--embedding-model": "embeddings are not there yet.",
    "--rerank-model": "reranking is not there yet.",
    "--max-audio-upload-mb": "audio is not there yet.",
    "--max-tts-input-chars": "audio is not there yet.",
    "--rate-limit": "there is --queue-limit, and a proxy can count requests.",
    "--offline": "set HF_HUB_OFFLINE=1 in the environment.",
    "--download-timeout": "set HF_HUB_DOWNLOAD_TIMEOUT in the environment.",
    "--download-retries": "a download that was cut off goes on where it was; start again.",
    "--revision": "give the directory of the revision as MODEL.",
    "--tensor-parallel-size": "one process uses one device yet.",
    "--pipeline-parallel-size": "one process uses one device yet.",
    "--data-parallel-size": "one process uses one device yet.",
    "--ssl-keyfile": _TLS,
    "--ssl-certfile": _TLS,
}


class _Note(argparse.Action):
    """Adds what is to be said to `notes`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        notes = [*getattr(namespace, "notes", []), f"{option_string}: {self.const}"]
        namespace.notes = list(dict.fromkeys(notes))


class _Refuse(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        parser.error(f"{option_string}: {self.const}")


def add(parser: argparse.ArgumentParser) -> None:
    """The parser understands all of these, and its help is silent about them."""
    tables: tuple[tuple[dict[str, str], type[argparse.Action], int | str | None], ...] = (
        (NOTED, _Note, 0),
        (NOTED_VALUES, _Note, None),
        (REFUSED, _Refuse, "?"),
    )
    for table, action, nargs in tables:
        for flag, told in table.items():
            parser.add_argument(
                flag,
                action=action,
                nargs=nargs,
                const=told,
                dest="notes",
                help=argparse.SUPPRESS,
            )
