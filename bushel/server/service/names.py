"""The names a model answers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bushel.core import BushelError
from bushel.server.errors import ApiError
from bushel.server.observability.logs import one_line
from bushel.server.options import ServerOptions

_LONGEST = 256  # more than any hub allows
_SHOWN = 80
_LISTED = 16  # names in an error


def own_name(model: str) -> str:
    """What a model is called when nobody says: as it was given, a directory by its last part.

    Replies and lists should not tell where files are.
    """
    path = Path(model)
    return path.resolve().name or model if path.is_dir() else model


def _checked(name: str) -> str:
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST:
        raise BushelError(
            f"--served-model-name: a name is 1 to {_LONGEST} printable characters, "
            f"not '{one_line(name, _SHOWN)}'."
        )
    return name


def matches(pattern: str, name: str) -> bool:
    """`*` stands for any characters; everything else for itself.

    No regular expression: with many stars, one of those can take for ever.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, last = rest
    at, end = len(first), len(name) - len(last)
    if at > end or not (name.startswith(first) and name.endswith(last)):
        return False
    for piece in middle:
        begin = name.find(piece, at, end)
        if begin < 0:
            return False
        at = begin + len(piece)
    return True


def names_of(options: ServerOptions) -> tuple[Names, ...]:
    """Of every model that is served. Raises BushelError if two are called the same, or an alias or
    a pin leads nowhere.
    """
    engine, served, aliases = options.engine, options.served_names, options.aliases
    if not options.models:
        return (Names.of(engine.model, served, aliases),)
    each = [
        Names.of(spec.model, served or (() if spec.name is None else (spec.name,)))
        for spec in options.models
    ]
    known = [name for names in each for name in names.all]
    for name in known:
        if known.count(name) > 1:
            raise BushelError(
                f"Two models are called {one_line(name, _SHOWN)}; write one as NAME=MODEL."
            )
    for pattern, target in aliases:
        _check_target(f"--model-alias {one_line(pattern, _SHOWN)}=", target, known)
    for name in options.pinned:
        _check_target("--pin ", name, known)
    return tuple(
        replace(
            names,
            aliases=(*names.aliases, *(alias for alias in aliases if alias[1] in names.all)),
        )
        for names in each
    )


def _check_target(flag: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise BushelError(
            f"{flag}{one_line(name, _SHOWN)}: no model is served under that name, only "
            f"{', '.join(known)}."
        )


@dataclass(frozen=True)
class Names:
    """main: the first of `all`, for requests that name none. aliases: (pattern, one of `all`)."""

    main: str
    all: tuple[str, ...]
    aliases: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, model: str, served: Sequence[str] = (), aliases: Sequence[tuple[str, str]] = ()
    ) -> Names:
        """Raises BushelError if a name is none, or an alias leads nowhere."""
        names = tuple(dict.fromkeys(map(_checked, served))) or (own_name(model),)
        for pattern, target in aliases:
            if target not in names:
                raise BushelError(
                    f"--model-alias {one_line(pattern, _SHOWN)}={one_line(target, _SHOWN)}: the "
                    f"model is not served under that name, only as {', '.join(names)}."
                )
        as_given = () if served or model in names else ((model, names[0]),)
        return cls(names[0], names, (*as_given, *aliases))

    def resolve(self, requested: str | None) -> str:
        """The served name that a request means, and that its reply carries; ApiError if none."""
        name = self.find(requested)
        if name is None:
            raise self.unknown(requested or "")
        return name

    def find(self, requested: str | None) -> str | None:
        """A served name means itself; otherwise the first alias that matches decides."""
        if requested is None or not requested.strip():
            return self.main
        if requested in self.all:
            return requested
        targets = (target for pattern, target in self.aliases if matches(pattern, requested))
        return next(targets, None)

    def unknown(self, requested: str, served: Sequence[str] = ()) -> ApiError:
        """served: by other names than these, too."""
        one = len(served) < 2
        shown = f"`{self.main}`" if one else ", ".join(f"`{name}`" for name in served[:_LISTED])
        more = "" if len(served) <= _LISTED else f" and {len(served) - _LISTED} more"
        return ApiError(
            404,
            f"The model `{one_line(requested, _SHOWN)}` does not exist. This server has "
            f"{shown}{more}; --model-alias 'PATTERN=NAME' makes it take other names for "
            f"{'it' if one else 'one of them'}.",
            code="model_not_found",
            param="model",
        )
