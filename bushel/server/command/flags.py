"""The arguments of `bushel serve`; `options_of_flags` makes options of them.

A flag's `dest` says where its value goes: "engine.max_batch" is `EngineOptions.max_batch`. A flag
that is not given leaves no trace, so that every default stands in its dataclass alone.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any, get_args

from bushel.core.checkpoint import TINY
from bushel.core.options import MOST_DISK, Attention, EngineOptions
from bushel.core.wire import MediaRules
from bushel.server import api_keys
from bushel.server.command import flag_values as values
from bushel.server.command import other_servers_flags
from bushel.server.command.flag_values import (
    OneOf,
    real,
    scaled_bytes,
    shaped,
    size,
    whole,
)
from bushel.server.observability.logs import LEVELS
from bushel.server.options import Limits, ServerOptions

_DTYPES = {
    **{name: name for name in ("float32", "bfloat16", "float16")},
    **{"float": "float32", "half": "float16", "auto": None},
}
_BITS = {"8": 8, "4": 4}
_ORDERS = {"arrival": "arrival", "fcfs": "arrival", "shortest": "shortest", "sjf": "shortest"}
_ATTENTION = {how: how for how in get_args(Attention)}
_SYSTEM = {"fold": False, "hoist": True}
# Sampling parameters that have a default of the server's, with what other servers call it.
_SAMPLED = (
    ("temperature", "--temp"),
    ("top_p", "--top-p"),
    ("top_k", "--top-k"),
    ("min_p", "--min-p"),
    ("repetition_penalty", "--repeat-penalty"),
)

_EPILOG = """\
examples:
  bushel serve                                        the small model that comes with Bushel
  bushel serve mlx-community/Qwen3-4B-Instruct-2507-4bit
  bushel serve small=./a large=./b --keep-alive 10m   two, each loaded when it is asked for
  bushel serve MODEL --host 0.0.0.0 --api-key-file keys.txt

Flags of vLLM, vllm-mlx, mlx-lm and llama.cpp are understood. Those that mean one of the above set
that one (--model sets MODEL). Those for what Bushel always does get a note. All others are refused.
"""

Group = argparse._ArgumentGroup


def _flag(group: Group, name: str, dest: str, *also: str, **more: Any) -> None:
    """also: what other servers call it, not shown in the help."""
    group.add_argument(name, dest=dest, **more)
    for other in also:
        group.add_argument(other, dest=dest, **{**more, "help": argparse.SUPPRESS})


# Name, place, other names and help of a flag stay together, a few lines each.
# fmt: off


def _model_flags(group: Group) -> None:
    names = ", ".join(name for name in _DTYPES if name not in ("float", "half"))
    group.add_argument(
        "models",
        metavar="MODEL",
        nargs="*",
        action="extend",
        help=f"a directory or a hub id (default: {TINY}, which comes with Bushel). Of several, or "
        "of a directory of checkpoints, each is loaded on first use; NAME=MODEL sets a name",
    )
    group.add_argument(
        "--model", "-m", dest="models", action="append", metavar="MODEL", help=argparse.SUPPRESS
    )
    _flag(group, "--downloaded", "server.downloaded", action="store_true",
          help="also serve every model that `bushel list` shows, by its hub id, and those that "
          "operators download while the server runs; code in these checkpoints is never run")
    _flag(group, "--keep-alive", "server.keep_alive", "--auto-unload-idle-seconds",
          type=values.duration, metavar="TIME",
          help="unload a model after it has been idle for TIME: seconds, 90s, 10m, 2h or never; "
          f"0: at once (default: {ServerOptions.keep_alive / 60:g}m with several models, never "
          "with one)")
    _flag(group, "--pin", "pinned", action="append", metavar="NAME",
          help="of several models, load this one at the start and keep it; may be repeated")
    _flag(group, "--swap-seconds", "server.swap_seconds", type=real(0), metavar="SECONDS",
          help="seconds a model waits for memory before models in use are drained and unloaded "
          f"(default: {ServerOptions.swap_seconds:g})")
    _flag(group, "--served-model-name", "names", "--alias", "-a", nargs="+", action="append",
          metavar="NAME",
          help="names the model is served under; the first is in replies to requests that name "
          "none (default: MODEL itself)")
    _flag(group, "--model-alias", "aliases", action="append", type=values.alias,
          metavar="PATTERN=NAME",
          help="requests for a name that matches PATTERN (* for any characters) mean NAME; "
          "may be repeated, the first match wins")
    _flag(group, "--dtype", "engine.dtype", type=OneOf(_DTYPES), metavar="DTYPE",
          help=f"{names} (default: the checkpoint's; float32 on a CPU)")
    _flag(group, "--max-model-len", "engine.max_model_len", "--ctx-size", "-c", "--context-length",
          type=values.context_tokens, metavar="TOKENS",
          help="most tokens of a prompt and its reply together: 8192, 32k (32,000) or 32K "
          "(32,768) (default: auto, the model's own context, which is never exceeded)")
    _flag(group, "--kv-bits", "engine.kv_bits", type=OneOf(_BITS), metavar="{8,4}",
          help="quantize the KV cache to 8 or 4 bits (default: not quantized)")
    _flag(group, "--trust-remote-code", "engine.trust_remote_code", action="store_true",
          help="run Python code that the checkpoint contains (default: never run)")
    _flag(group, "--no-self-check", "engine.self_check", action="store_false",
          help="skip the check at load that compares batched with single replies, for model "
          "families that Bushel does not know")


def _access_flags(group: Group) -> None:
    _flag(group, "--host", "server.host", type=shaped(values.HOST, "a host name or an address"),
          metavar="HOST", help=f"address to listen on (default: {ServerOptions.host})")
    _flag(group, "--port", "server.port", type=whole(0, 65535), metavar="PORT",
          help=f"0 takes any free one (default: {ServerOptions.port})")
    _flag(group, "--api-key", "keys", action="append", type=api_keys.key, metavar="KEY",
          help="a key that clients must send; may be repeated. Other users of this machine can "
          f"see it: {api_keys.VARIABLE} in the environment or a file are better")
    _flag(group, "--api-key-file", "key_files", action="append", metavar="FILE",
          help="a file with one API key per line")
    _flag(group, "--operator-key", "operator_keys", action="append", type=api_keys.key,
          metavar="KEY",
          help="a key that may also see and cancel other keys' requests, and clear the cache; may "
          f"be repeated, and {api_keys.OPERATOR_VARIABLE} in the environment is better (default: "
          "the only key, if there is one; everyone, if there is none)")
    _flag(group, "--allowed-host", "allowed_hosts", action="append", metavar="HOST",
          type=shaped(values.HOSTS, "a host name, *.NAME or *"),
          help="a host name that requests may use for this server, besides --host and loopback; "
          "*.local allows every name that ends in .local, * allows all; may be repeated")
    _flag(group, "--cors-origin", "cors_origins", action="append", metavar="ORIGIN",
          type=shaped(values.ORIGIN, "an origin such as http://localhost:3000, or *"),
          help="web pages of this origin may use the server; may be repeated")
    group.add_argument("--allowed-origins", dest="cors_origins", action="extend",
                       type=values.origins, help=argparse.SUPPRESS)
    _flag(group, "--root-path", "server.root_path", "--api-prefix", type=values.root_path,
          metavar="PATH",
          help="a path such as /llm under which a proxy publishes this server: it answers there, "
          "too, whether or not the proxy strips the path from requests")
    _flag(group, "--cache-per-key", "server.cache_per_key", action="store_true",
          help="share cached prefixes only between requests with the same API key; otherwise a "
          "client can tell from timing and cached_tokens how others' prompts begin")


def _load_flags(group: Group) -> None:
    engine, limits = EngineOptions, Limits
    _flag(group, "--max-num-seqs", "engine.max_batch", "--max-batch", "--parallel",
          "-np", "--decode-concurrency", type=whole(1, 4096),
          metavar="N", help=f"most replies in a decode batch (default: {engine.max_batch})")
    _flag(group, "--prefill-chunk", "engine.prefill_chunk", "--chunked-prefill-tokens",
          "--prefill-step-size", "--mllm-prefill-step-size", "--max-num-batched-tokens",
          type=whole(1, 1 << 20), metavar="N",
          help="most prompt tokens in one step; longer prompts run in chunks "
          f"(default: {engine.prefill_chunk})")
    _flag(group, "--scheduler-policy", "engine.order", "--scheduling-policy",
          type=OneOf(_ORDERS), metavar="ORDER",
          help="which waiting request is admitted first: arrival (or fcfs), in order of arrival; "
          f"shortest (or sjf), the shortest prompt (default: {engine.order})")
    _flag(group, "--attention", "engine.attention", type=OneOf(_ATTENTION), metavar="HOW",
          help="KV cache of a batch: pages (paged attention), padded (to the longest row) or auto "
          "(default: auto, paged on a GPU if that passes a check at load)")
    _flag(group, "--speculate", "engine.speculate", "--draft-model", "--mllm-draft-model",
          type=values.drafter, metavar="DRAFTER",
          help="drafter for speculative decoding: auto, off, lookup, mtp, or a draft model's "
          "directory or hub id; output never changes (default: auto: lookup, and mtp if the "
          "checkpoint has prediction heads)")
    for flag, reads in (("--speculative-config", values.speculative_config),
                        ("--speculative-method", values.speculative_method)):
        group.add_argument(flag, dest="engine.speculate", type=reads, help=argparse.SUPPRESS)
    group.add_argument("--enable-mtp", dest="engine.speculate", action="store_const", const="mtp",
                       help=argparse.SUPPRESS)
    _flag(group, "--token-gap", "engine.token_gap", type=real(0), metavar="SECONDS",
          help="target for the longest time between two tokens of a running reply "
          f"(default: {engine.token_gap})")
    _flag(group, "--start-wait", "engine.start_wait", type=real(0), metavar="SECONDS",
          help="seconds after which a waiting prompt is served first, or takes a slot from a "
          f"request that holds many (default: {engine.start_wait})")
    _flag(group, "--memory-limit-gb", "engine.memory_limit", type=scaled_bytes(10**9, 0.001),
          metavar="GB",
          help="memory that MLX may use (default: what this machine can spare)")
    _flag(group, "--scheduler-headroom-gb", "engine.headroom", type=scaled_bytes(10**9, 0),
          metavar="GB",
          help="GB of --memory-limit-gb to leave unused (default: a twentieth of it)")
    _flag(group, "--queue-limit", "limits.queue", type=whole(1, 1 << 20), metavar="N",
          help=f"requests that may wait; more get a 429 (default: {limits.queue})")
    _flag(group, "--max-request-tokens", "limits.tokens", type=whole(1, 1 << 40), metavar="N",
          help="most tokens that one request may ask for, over all its choices "
          f"(default: {limits.tokens})")
    _flag(group, "--max-body-mb", "limits.body_bytes", type=scaled_bytes(1 << 20, 0.001),
          metavar="MB",
          help=f"most MB of one request's body (default: {limits.body_bytes >> 20})")


def _cache_flags(group: Group) -> None:
    _flag(group, "--no-prefix-cache", "engine.prefix_cache", "--disable-prefix-cache",
          "--no-enable-prefix-caching", action="store_false",
          help="turn the prefix cache off: every prompt is computed in full")
    _flag(group, "--cache-memory", "engine.cache_memory", type=size, metavar="SIZE",
          help="memory for the prefix cache, such as 4 (GB) or 512MB; running requests come first "
          "(default: half of what is free beside the weights)")
    _flag(group, "--cache-memory-mb", "engine.cache_memory", type=scaled_bytes(1 << 20, 1),
          help=argparse.SUPPRESS)
    _flag(group, "--snapshot-every", "engine.snapshot_every", "--mid-prefill-save-interval",
          type=whole(0, 1 << 30), metavar="TOKENS",
          help="tokens between two snapshots of a long prompt, for models with layers whose state "
          "cannot be cut at any token (recurrent, sliding window); 0: only between messages "
          f"(default: {EngineOptions.snapshot_every})")
    _flag(group, "--cache-kv-bits", "engine.cache_kv_bits", "--kv-cache-quantization-bits",
          type=OneOf(_BITS), metavar="{8,4}",
          help="quantize the prefix cache to 8 or 4 bits: more fits, and replies may differ a "
          "little (default: not quantized)")
    group.add_argument(
        "--kv-cache-quantization", dest="quantized", action="store_true", help=argparse.SUPPRESS
    )
    _flag(group, "--cache-dir", "engine.cache_dir", "--ssd-cache-dir", type=values.place,
          metavar="DIR",
          help="also keep the prefix cache in files there, across restarts; prompts can be read "
          "from these files (default: in memory alone)")
    _flag(group, "--cache-disk", "engine.cache_disk", "--ssd-cache-max-gb", type=size,
          metavar="SIZE",
          help=f"size limit of the files in --cache-dir (default: {MOST_DISK // 10**9} GB, or a "
          "tenth of what is free there if that is less)")


def _batch_flags(group: Group) -> None:
    _flag(group, "--no-batches", "server.batches", action="store_false",
          help="turn /v1/files and /v1/batches off")
    _flag(group, "--batch-dir", "server.batch_dir", type=values.place, metavar="DIR",
          help="keep files and batches there; they contain requests and replies (default: a folder "
          "in ~/.cache/bushel for each port)")
    _flag(group, "--batch-disk", "server.batch_disk", type=size, metavar="SIZE",
          help="size limit of files and batches on disk "
          f"(default: {ServerOptions.batch_disk // 10**9} GB)")


def _process_flags(group: Group) -> None:
    server = ServerOptions
    _flag(group, "--timeout", "server.timeout", type=real(0.001), metavar="SECONDS",
          help="timeout of requests that set none (default: as long as it takes)")
    _flag(group, "--drain-seconds", "server.drain_seconds", type=real(0), metavar="SECONDS",
          help="time for running requests to finish when the server is told to end "
          f"(default: {server.drain_seconds:g})")
    _flag(group, "--hang-seconds", "server.hang_seconds", type=real(1), metavar="SECONDS",
          help="restart an engine that makes no progress for this long "
          f"(default: {server.hang_seconds:g})")
    _flag(group, "--workers", "server.workers", type=whole(1, 64), metavar="N",
          help="processes that template, tokenize and decode images "
          f"(default: {server.workers})")
    _flag(group, "--end-with-stdin", "server.end_with_stdin", action="store_true",
          help="stop when standard input is closed, so that the server never outlives the program "
          "that started it; `bushel chat` and other commands do not connect to such a server")


def _chat_flags(group: Group) -> None:
    _flag(group, "--system-messages", "chat_options.hoist", type=OneOf(_SYSTEM),
          metavar="{fold,hoist}",
          help="system messages after the first turn: fold each into the turn next to it if the "
          "template allows none there, or hoist all to the top, where each new one invalidates "
          "the cached prefix (default: fold)")
    _flag(group, "--tool-format", "chat_options.tools", metavar="NAME",
          help="format of the model's tool calls (default: detected from the chat template); "
          "docs/reference.md lists the names")
    _flag(group, "--thinking-format", "chat_options.thinking", metavar="NAME",
          help="format of the model's reasoning (default: detected from the chat template); "
          "docs/reference.md lists the names")
    _flag(group, "--chat-template", "chat_options.template", type=values.chat_template,
          metavar="FILE",
          help="a chat template instead of the checkpoint's: a file, or the template itself")
    group.add_argument("--chat-template-file", dest="chat_options.template",
                       type=values.template_file, help=argparse.SUPPRESS)
    _flag(group, "--default-chat-template-kwargs", "chat_options.template_kwargs",
          "--chat-template-kwargs", "--chat-template-args", type=values.json_object,
          metavar="JSON",
          help='variables of the chat template where a request does not set them, such as '
          """'{"enable_thinking": false}'""")
    _flag(group, "--keep-client-headers", "chat_options.keep_headers", action="store_true",
          help="keep lines about the client itself, such as billing headers, in system prompts; "
          "they prevent conversations from sharing cached prefixes (default: they are removed)")


def _sampling_flags(group: Group) -> None:
    _flag(group, "--generation-config", "server.generation_config",
          type=values.generation_config, metavar="WHERE",
          help="auto: the checkpoint's own; vllm: none, so that temperature is 1 and nothing else "
          "is set; or a directory with another generation_config.json (default: auto)")
    for name, *also in _SAMPLED:
        flag = f"--default-{name.replace('_', '-')}"
        _flag(group, flag, f"defaults.{name}", *also, type=values.sampled(name), metavar="X",
              help=f"{name} of requests that set none")
    _flag(group, "--default-max-tokens", "defaults.max_tokens", "--max-tokens", "--n-predict", "-n",
          type=values.unless("-1", values.sampled("max_tokens")), metavar="N",
          help="max_tokens of requests that set none; -1: the same as without this flag")
    _flag(group, "--seed", "defaults.seed", "-s",
          type=values.unless("-1", values.sampled("seed")), metavar="N",
          help="seed of requests that set none, so that the same request gets the same reply "
          "(default: a new one each time)")


def _media_flags(group: Group) -> None:
    _flag(group, "--allow-remote-media", "media.remote", action="store_true",
          help="fetch http and https URLs")
    _flag(group, "--allowed-media-domains", "domains", nargs="+", action="append",
          metavar="DOMAIN", type=shaped(values.DOMAIN, "a host name or *.NAME"),
          help="fetch from these hosts only; *.example.org: all its subdomains")
    _flag(group, "--media-path", "media.folder", "--allowed-local-media-path", type=values.folder,
          metavar="DIR",
          help="requests may name files in this directory (file:// URLs)")
    _flag(group, "--limit-mm-per-prompt", "media_limits", type=values.media_limits, metavar="JSON",
          help="how many of each kind one request may hold, such as "
          """'{"image": 4, "video": 1}' or image=4,video=1 (default: """
          f"{MediaRules().most_items} in all)")
    _flag(group, "--max-media-size", "media.most_bytes", type=size, metavar="SIZE",
          help="size limit of one image or video, as it is sent or fetched "
          f"(default: {MediaRules().most_bytes >> 20} MiB)")
    _flag(group, "--video-max-frames", "media.most_frames", type=whole(1, 4096), metavar="N",
          help="most frames used of one video, spread over all of it "
          f"(default: {MediaRules().most_frames})")
    _flag(group, "--video-max-seconds", "media.most_seconds", type=real(1), metavar="SECONDS",
          help="refuse longer videos "
          f"(default: {MediaRules().most_seconds:g})")


def _log_flags(group: Group) -> None:
    _flag(group, "--log-level", "server.log_level", "--uvicorn-log-level",
          type=OneOf({name: name for name in LEVELS}, fold=True), metavar="LEVEL",
          help=f"{', '.join(LEVELS)} (default: {ServerOptions.log_level})")
    _flag(group, "--log-json", "server.log_json", action="store_true",
          help="one JSON object per line")
    _flag(group, "--log-prompts", "server.log_prompts", action="store_true",
          help="log the text that clients send (default: never logged)")


# fmt: on


def add(commands: Any) -> argparse.ArgumentParser:
    """Adds `serve` to the sub-commands of a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        usage="bushel serve [MODEL ...] [FLAG ...]",
        help="serve models over HTTP (OpenAI, Anthropic, Ollama and llama.cpp APIs)",
        description="Serves models over HTTP, to many clients at once.",
        epilog=_EPILOG,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="flags that are not given, in TOML (default: $BUSHEL_CONFIG, or bushel.toml in "
        "~/.config/bushel); each is also a variable: --max-num-seqs is BUSHEL_MAX_NUM_SEQS",
    )
    for title, fill in (
        ("model", _model_flags),
        ("address and access", _access_flags),
        ("load and memory", _load_flags),
        ("prefix cache", _cache_flags),
        ("files and batches", _batch_flags),
        ("time and processes", _process_flags),
        ("conversations and replies", _chat_flags),
        ("sampling defaults (otherwise: the model's generation config)", _sampling_flags),
        ("images and video in requests (data: URLs always work)", _media_flags),
        ("logs, on stderr", _log_flags),
    ):
        fill(parser.add_argument_group(title))
    other_servers_flags.add(parser)
    return parser


def take_model(arguments: argparse.Namespace, rest: list[str]) -> list[str]:
    """MODEL after flags: argparse leaves it over. Returns what is left over then."""
    found = list(itertools.takewhile(lambda word: not word.startswith("-"), rest))
    if found:
        arguments.models = [*getattr(arguments, "models", ()), *found]
    return rest[len(found) :]
