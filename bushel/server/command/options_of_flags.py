"""The options that the arguments of `bushel serve` make, and what should be said about them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

from bushel.chat.template.options import RESERVED, VARIABLE
from bushel.core import BushelError, GenerationDefaults
from bushel.core.checkpoint import TINY
from bushel.core.options import ChatOptions, EngineOptions, disk_room
from bushel.core.wire import MediaRules
from bushel.server import api_keys
from bushel.server.callers import is_loopback
from bushel.server.options import Limits, ModelSpec, ServerOptions
from bushel.server.service.names import names_of

# With these a single model comes and goes, too.
_COMES_AND_GOES = {"server.keep_alive", "server.downloaded", "pinned"}


def _is_checkpoint(path: str) -> bool:
    return os.path.isfile(os.path.join(path, "config.json"))


def _specs(word: str) -> list[ModelSpec]:
    """What one MODEL names: itself, or every checkpoint in a directory of them."""
    name, equals, model = word.partition("=")
    if equals and name and not os.path.exists(word):
        return [ModelSpec(model, name)]
    if os.path.isdir(word) and not _is_checkpoint(word):
        folders = sorted(entry.path for entry in os.scandir(word) if _is_checkpoint(entry.path))
        if folders:
            return [ModelSpec(path, os.path.basename(path)) for path in folders]
    return [ModelSpec(word)]


def _models(given: Mapping[str, Any]) -> tuple[ModelSpec, ...]:
    """Those that come and go; none if there is one for ever."""
    words = given.get("models") or [TINY]
    if not all(words):
        raise BushelError("MODEL is empty: name a directory or a hub id.")
    specs = tuple(spec for word in words for spec in _specs(word))
    if specs == (ModelSpec(words[0]),) and not _COMES_AND_GOES & given.keys():
        return ()
    if len(specs) > 1 and "names" in given:
        raise BushelError("--served-model-name names one model; write several as NAME=MODEL.")
    if (len(specs) > 1 or "server.downloaded" in given) and "chat_options.template" in given:
        raise BushelError("--chat-template is one model's; serve that one alone.")
    return specs


def _words(given: Mapping[str, Any], dest: str, flag: str) -> tuple[str, ...]:
    """Of a flag that takes several; it would have taken MODEL for one of them, too."""
    lists = given.get(dest, ())
    if "models" not in given and any(len(words) > 1 for words in lists):
        raise BushelError(
            f"{flag} took every word after it ({' '.join(lists[-1])}); put MODEL before it."
        )
    return tuple(word for words in lists for word in words)


def _warnings(options: ServerOptions) -> list[str]:
    warnings = []
    if not is_loopback(options.host):
        if options.keys:
            warnings.append(
                f"--host {options.host}: other machines can reach this server, and keys and "
                "prompts travel unencrypted."
            )
        else:
            warnings.append(
                f"--host {options.host} WITHOUT AN API KEY: everyone who can reach this machine "
                f"can use this server. Set {api_keys.VARIABLE} or --api-key-file, or listen on "
                "127.0.0.1."
            )
    if "*" in options.cors_origins and not options.keys:
        warnings.append(
            "--cors-origin *: every page that a browser here opens can use this server."
        )
    if len(options.api_keys) > 1 and not options.operator_keys:
        warnings.append(
            "several keys and no --operator-key: nobody can clear the cache, and each key sees and "
            "cancels its own requests alone."
        )
    return warnings


def _cache(engine: Mapping[str, Any], quantized: bool) -> dict[str, Any]:
    """The settings of prefix reuse, with those that follow from others."""
    settings = dict(engine)
    if quantized:
        settings.setdefault("cache_kv_bits", 8)
    if "cache_disk" in settings and "cache_dir" not in settings:
        raise BushelError("--cache-disk needs --cache-dir.")
    idle = [name for name in settings if name.startswith("cache_") or name == "snapshot_every"]
    if idle and settings.get("prefix_cache") is False:
        raise BushelError(f"--no-prefix-cache leaves --{idle[0].replace('_', '-')} without use.")
    if "cache_dir" in settings:
        settings.setdefault("cache_disk", disk_room(settings["cache_dir"]))
    return settings


def _media(given: Mapping[str, Any]) -> dict[str, int]:
    """How many images and videos a request may hold; more than usual, if that was asked for."""
    limits: dict[str, int] = given.get("media_limits", {})
    most = max(MediaRules().most_items, sum(limits.values()))
    return {**limits, "most_items": most} if limits else {}


def _check_variables(given: Mapping[str, Any]) -> None:
    for name in given:
        if name in RESERVED or not VARIABLE.fullmatch(name):
            raise BushelError(
                f"--default-chat-template-kwargs: {name!r:.60} is no variable of a chat template."
            )


def _build(given: Mapping[str, Any], environment: Mapping[str, str]) -> ServerOptions:
    def part(name: str) -> dict[str, Any]:
        prefix = f"{name}."
        return {key[len(prefix) :]: value for key, value in given.items() if key.startswith(prefix)}

    models = _models(given)
    first = models[0].model if models else (given.get("models") or [TINY])[0]
    engine = {"model": first, **_cache(part("engine"), "quantized" in given)}
    media = {**_media(given), **part("media")}
    domains = _words(given, "domains", "--allowed-media-domains")
    if domains and "media.remote" not in given:
        raise BushelError("--allowed-media-domains needs --allow-remote-media.")
    _check_variables(part("chat_options").get("template_kwargs", {}))
    return ServerOptions(
        engine=EngineOptions(**engine),
        models=models,
        pinned=tuple(given.get("pinned", ())),
        api_keys=api_keys.api_keys(given, environment),
        operator_keys=api_keys.operator_keys(given, environment),
        served_names=_words(given, "names", "--served-model-name"),
        aliases=tuple(given.get("aliases", ())),
        allowed_hosts=tuple(given.get("allowed_hosts", ())),
        cors_origins=tuple(given.get("cors_origins", ())),
        defaults=GenerationDefaults(**part("defaults")),
        media=MediaRules(domains=domains, **media),
        limits=Limits(**part("limits")),
        chat_options=ChatOptions(**part("chat_options")),
        **part("server"),
    )


def options_of_flags(
    arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ
) -> tuple[ServerOptions, list[str]]:
    """What was asked for, and what should be said about it.

    Raises BushelError for what each flag alone cannot know to be wrong.
    """
    given = vars(arguments)
    made = _build(given, environment)
    names_of(made)
    return made, [*given.get("notes", ()), *_warnings(made)]
