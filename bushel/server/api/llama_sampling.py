"""How llama.cpp's API, and Ollama's after it, name the ways in which tokens are chosen."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from bushel.core.params import BOUNDS
from bushel.server.api.descriptions import about
from bushel.server.api.errors import unsupported
from bushel.server.api.fields import Seed, whole
from bushel.server.api.sampling import SamplingFields

# Values that switch samplers off that nobody here has: clients send all of their settings.
_OFF: dict[str, float] = {"tfs_z": 1}
_RANDOM = (-1, (1 << 32) - 1)  # seeds that stand for a new one each time


def _seed(value: Any) -> Any:
    return None if type(value) is int and value in _RANDOM else value


_SEED_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": BOUNDS["seed"].low, "maximum": BOUNDS["seed"].high},
        {"type": "null"},
    ]
}
LlamaSeed = Annotated[
    Seed | None,
    BeforeValidator(_seed),
    WithJsonSchema(_SEED_SCHEMA),
    about(
        "The same seed gives the same reply to the same request; -1 and 2^32 - 1: a new one each "
        "time (default: -1)."
    ),
]

# -1: until the reply ends by itself; -2: until the context is full, which is the same here.
PredictedTokens = Annotated[
    int,
    Field(strict=True, ge=-2, le=int(BOUNDS["max_tokens"].high)),
    BeforeValidator(whole),
]


class LlamaSamplingFields(SamplingFields):
    seed: LlamaSeed = None

    def require_known_samplers(self, where: str = "") -> None:
        """InvalidField for a sampler that is on and that nobody here has. where: what its name
        stands behind.
        """
        given = self.model_extra or {}
        for name, off in _OFF.items():
            if given.get(name, off) not in (None, off):
                raise unsupported(where + name, f"is not supported by this server, unless {off}")
        if self.repeat_last_n not in (None, -1) and any(
            (self.presence_penalty, self.frequency_penalty)
        ):
            raise unsupported(
                where + "repeat_last_n",
                "is not supported by this server beside presence_penalty or frequency_penalty, "
                "unless -1: these look at every token",
            )
