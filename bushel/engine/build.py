"""From options to an engine that can serve: load, check, measure."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import get_args

from bushel.cache.prefix import PrefixCache, cannot_restore
from bushel.cache.prefix.disk import Disk
from bushel.core import BushelError, Decoding
from bushel.core.checkpoint import fingerprint
from bushel.core.footprint import Memory
from bushel.core.load_progress import OnLoaded
from bushel.core.options import (
    DRAFTERS,
    Attention,
    EngineOptions,
    Order,
    disk_room,
    speculates_by,
)
from bushel.core.version import VERSION
from bushel.engine import device_memory
from bushel.engine.attention_route import choose_attention
from bushel.engine.batching_check import require_kv_bits, single_because
from bushel.engine.drafts.choose_drafters import choose_drafters
from bushel.engine.drafts.draft_memory import plan_memory
from bushel.engine.engine import Engine
from bushel.engine.plan import Policy
from bushel.engine.row_state import new_row, ran_a_token
from bushel.engine.sampling.draw import derived_seed
from bushel.models import Model, load
from bushel.models.known_families import cuts_matter

# Of what is free beside the weights; rows that need it get it all the same (`PrefixCache.fit`).
_CACHE_SHARE = 0.5


def _nothing(*_: object) -> None:
    pass


def build(
    options: EngineOptions,
    progress: Callable[[str], None] = _nothing,
    clock: Callable[[], float] = time.perf_counter,
    loading: OnLoaded | None = None,
    allot: Callable[[EngineOptions, int], int] | None = None,
) -> Engine:
    """The calling thread owns the engine. `progress` hears what is being done, `loading` how many
    bytes of the weights are there. allot: of the memory that may be used, what others leave."""
    _check(options)
    limit = _limit(options, allot)
    usable = device_memory.usable(limit, options.headroom)
    progress("loading weights")
    model = _checked_model(options, usable, progress, loading)
    if options.max_batch > 1:
        progress("trying how rows share a batch")
    routes = choose_attention(model, options.attention) if options.max_batch > 1 else {}
    speculation = choose_drafters(model, options, progress, usable)
    progress("measuring memory")
    speculation, sizes = plan_memory(model, speculation, usable)
    memory = Memory(sizes, usable, device_memory.buffer_limit())
    why, prefixes = _prefixes(model, options, memory)
    engine = Engine(
        model,
        _policy(options),
        clock,
        memory,
        prefixes=prefixes,
        snapshot_every=options.snapshot_every,
        computes_whole=why,
        claim=device_memory.claim(limit, memory.limit),
        attention=routes,
        speculation=speculation,
    )
    engine.admission.claimed = limit
    return engine


def _limit(options: EngineOptions, allot: Callable[[EngineOptions, int], int] | None) -> int:
    """Bytes that MLX may use."""
    limit = options.memory_limit
    limit = device_memory.memory_limit(options.beside) if limit is None else limit
    return limit if allot is None else allot(options, limit)


def _checked_model(
    options: EngineOptions,
    usable: int,
    progress: Callable[[str], None],
    loading: OnLoaded | None,
) -> Model:
    """Loaded; it knows whether its rows may share a batch."""
    model = load(
        options.model,
        dtype=options.dtype,
        kv_bits=options.kv_bits,
        trust_remote_code=options.trust_remote_code,
        max_model_len=options.max_model_len,
        usable=usable,
        loading=loading or _nothing,
    )
    if options.kv_bits is not None:
        require_kv_bits(model)
    if options.self_check and options.max_batch > 1:
        progress("checking that rows of a batch do not mix")
        model.single = single_because(model)
    return model


def _policy(options: EngineOptions) -> Policy:
    return Policy(
        max_batch=options.max_batch,
        prefill_chunk=options.prefill_chunk,
        token_gap=options.token_gap,
        start_wait=options.start_wait,
        order=options.order,
    )


def keep_to(engine: Engine, options: EngineOptions, limit: int) -> None:
    """Another limit for MLX, with the same shares for everything."""
    memory, usable = engine.admission.memory, device_memory.usable(limit, options.headroom)
    if memory is not None:
        engine.keep_to(limit, usable, _kept(options, usable - memory.footprint.weights))


def _kept(options: EngineOptions, free: int) -> int:
    """Bytes for prefixes, of those that the weights leave."""
    return int(free * _CACHE_SHARE) if options.cache_memory is None else options.cache_memory


def reuse_fault(model: Model) -> str | None:
    """Why nothing of this model's prompts can be reused, or None."""
    if model.encodes:
        return "an encoder reads a text as a whole"
    return cuts_matter(model.network) or cannot_restore(ran_a_token(model))


def _prefixes(
    model: Model, options: EngineOptions, memory: Memory
) -> tuple[str, PrefixCache | None]:
    """What keeps computed prefixes; or nothing, and why."""
    if not options.prefix_cache:
        return "it is switched off", None
    why = reuse_fault(model)
    if why is not None:
        return why, None
    return "", PrefixCache(
        partial(new_row, model),
        ran_a_token(model),
        _kept(options, memory.limit - memory.footprint.weights),
        memory.buffer_limit,
        options.cache_kv_bits,
        _disk(model, options),
    )


def _disk(model: Model, options: EngineOptions) -> Callable[[str], Disk] | None:
    """Files for state of one form, of this checkpoint, made by these versions."""
    if options.cache_dir is None:
        return None
    folder = Path(options.cache_dir)
    limit = options.cache_disk
    limit = disk_room(options.cache_dir) if limit is None else limit
    made_by = [VERSION, *map(version, ("mlx", "mlx-lm", "mlx-vlm", "transformers"))]
    made_of = [fingerprint(model.host.path), options.dtype, options.kv_bits, *made_by]

    def opened(form: str) -> Disk:
        namespace = hashlib.sha256(repr([*made_of, form]).encode()).hexdigest()
        return Disk(folder, f"{model.name} {namespace}", limit)

    return opened


def rows_of(decoding: Decoding, count: int) -> tuple[Decoding, ...]:
    """One request's settings as those of each of its choices."""
    seeds = (derived_seed(decoding.seed, choice) for choice in range(count))
    return tuple(dataclasses.replace(decoding, seed=seed) for seed in seeds)


def _check(options: EngineOptions) -> None:
    for name in ("max_batch", "prefill_chunk"):
        value = getattr(options, name)
        if not isinstance(value, int) or value < 1:
            raise BushelError(f"{name} must be one or more, not {value!r}.")
    for name, known in (("order", Order), ("attention", Attention)):
        value = getattr(options, name)
        if value not in get_args(known):
            raise BushelError(f"{name} must be one of {', '.join(get_args(known))}, not {value!r}.")
    if not isinstance(options.speculate, str) or not speculates_by(options.speculate):
        drafters = f"{', '.join(DRAFTERS)}, a directory or a hub id"
        raise BushelError(f"speculate must be one of {drafters}, not {options.speculate!r}.")
    for name in ("memory_limit", "headroom", "cache_memory", "cache_disk"):
        size = getattr(options, name)
        if size is not None and (not isinstance(size, int) or size < 0):
            raise BushelError(f"{name} must be a number of bytes, not {size!r}.")
    if options.cache_kv_bits not in (None, 8, 4):
        raise BushelError(f"cache_kv_bits must be 8 or 4, not {options.cache_kv_bits!r}.")
    if not isinstance(options.snapshot_every, int) or options.snapshot_every < 0:
        raise BushelError(
            f"snapshot_every must be a number of tokens, not {options.snapshot_every!r}."
        )
    for name in ("token_gap", "start_wait"):
        bound = getattr(options, name)
        if not isinstance(bound, int | float) or not bound >= 0:
            raise BushelError(f"{name} must be a number of seconds, not {bound!r}.")
