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
_FITS = "pages have 16 tokens, and their number follows from memory; see --memory-limit-gb."
_PROCESSES = "the engine is always a process of its own; --workers counts those beside it."
_MAPPED = "weights are read once, into memory of the device."
_DEVICE = "MLX uses the whole device."
_PREFIX = "needs no flag; --no-prefix-cache switches it off."
_ENTRIES = "what is kept is bounded by its size; see --cache-memory."

_DEPTH = "the draft length follows from measured costs and each reply's acceptance."
_PROMPTS = "prompts run in chunks, and short ones share a pass; see --prefill-chunk."

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
    "--enable-reasoning": "reasoning is always separate from the answer.",
    "--disable-log-stats": "numbers are at /metrics and /v1/status, and not in the log.",
    "--enable-prompt-tokens-details": "replies always tell how many tokens were reused.",
    "--enable-server-load-tracking": "metrics are always at /metrics.",
    "--disable-frontend-multiprocessing": _PROCESSES,
    "--async-scheduling": _ALWAYS,
    "--enforce-eager": "MLX has no graphs to capture.",
    "--allow-credentials": "keys are sent as headers, which --cors-origin allows.",
    "--use-default-chat-template": "the checkpoint's own is used, or --chat-template.",
    "--jinja": "the checkpoint's own template is always used.",
    "--cont-batching": _ALWAYS,
    "-cb": _ALWAYS,
    "--metrics": "metrics are always at /metrics.",
    "--slots": "/v1/status shows every request.",
    "--mlock": _MAPPED,
    "--no-mmap": _MAPPED,
    "--embedding": "embeddings need no flag.",
    "--embeddings": "embeddings need no flag.",
    "--reranking": "scores need no flag.",
}

# Flags with one value, or none.
NOTED_PERHAPS = {
    "--flash-attn": _ALWAYS,
    "-fa": _ALWAYS,
}

# Flags with one value.
NOTED_VALUES = {
    "--stream-interval": "Bushel sends what every step adds.",
    "--prefill-batch-size": _PROMPTS,
    "--completion-batch-size": "--max-num-seqs says how many replies run together.",
    "--paged-cache-block-size": _FITS,
    "--max-cache-blocks": _FITS,
    "--block-size": _FITS,
    "--prefix-cache-size": _ENTRIES,
    "--tool-call-parser": "found in the model's template; --tool-format NAME overrides it.",
    "--api-server-count": _PROCESSES,
    "--load-format": "safetensors are read, as checkpoints have them.",
    "--guided-decoding-backend": "one grammar compiler serves all forms.",
    "--chat-template-content-format": "found by trying the model's template.",
    "--allowed-methods": "--cors-origin allows all that the server has.",
    "--allowed-headers": "--cors-origin allows all that a page asks for.",
    "--prompt-concurrency": _PROMPTS,
    "--prompt-cache-size": _ENTRIES,
    "--threads": _DEVICE,
    "-t": _DEVICE,
    "--n-gpu-layers": _DEVICE,
    "--gpu-layers": _DEVICE,
    "-ngl": _DEVICE,
    "--ubatch-size": "--prefill-chunk says how many tokens run at once.",
    "-ub": "--prefill-chunk says how many tokens run at once.",
    "--num-speculative-tokens": _DEPTH,
    "--num-draft-tokens": _DEPTH,
    "--mtp-num-draft-tokens": _DEPTH,
    "--mllm-draft-block-size": _DEPTH,
    "--mllm-draft-kind": "seen from the checkpoint that --speculate names.",
    "--reasoning-parser": "found in the model's template; --thinking-format NAME overrides it.",
}

_THINKING = "requests say it, or --default-chat-template-kwargs for those that do not."
_SEVERAL = "name several models, or a directory of them; see --keep-alive and --pin."
_ADAPTERS = "adapters are not there yet."
_GGUF = "name the model's hub id as MODEL; GGUF files are not read."
_KV = "use --kv-bits, or --cache-kv-bits for what is kept of prompts."
_TLS = "put a proxy with TLS in front."

REFUSED = {
    "--max-kv-size": "nothing of a conversation is dropped; --max-model-len bounds its length.",
    "--gpu-memory-utilization": "use --memory-limit-gb.",
    "--tool-parser-plugin": "formats are Bushel's own; --tool-format names one.",
    "--mcp-config": "tools are the client's to run.",
    "--enable-thinking": _THINKING,
    "--default-thinking-token-budget": _THINKING,
    "--mtp-optimistic": "a drafted token is accepted only if sampling gives the same token.",
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
    "--tokenizer": "the checkpoint's own is used.",
    "--hf-overrides": "change the checkpoint's config.json.",
    "--quantization": "a checkpoint is served as it is quantized.",
    "--override-generation-config": "use --default-temperature and its like.",
    "--mm-processor-kwargs": "the checkpoint's own processor settings are used.",
    "--enable-force-include-usage": "requests ask for it, by stream_options.",
    "--return-tokens-as-token-ids": "requests ask for ids.",
    "--middleware": "put a proxy in front.",
    "--uds": "listen on 127.0.0.1.",
    "--adapter-path": _ADAPTERS,
    "--mmproj": "a checkpoint's directory has its vision half, too.",
    "--hf-repo": _GGUF,
    "-hf": _GGUF,
    "--prompt-cache-bytes": "use --cache-memory.",
    "--default-presence-penalty": "penalties of this kind are the request's own.",
    "--models-config": _SEVERAL,
    "--lazy-load-model": _SEVERAL,
    "--enable-lora": _ADAPTERS,
    "--lora-modules": _ADAPTERS,
    "--embedding-model": _SEVERAL,
    "--rerank-model": _SEVERAL,
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
        (NOTED_PERHAPS, _Note, "?"),
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
