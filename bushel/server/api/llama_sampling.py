"""How llama.cpp's API, and Ollama's after it, name the ways in which tokens are chosen.

Samplers that Bushel does not have are accepted where they are off, since clients send all of their
settings, and refused by name where they are on. One that becomes a field of `SamplingFields` is a
field here, too, and nothing has to be refused any more.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from bushel.core.params import BOUNDS
from bushel.server.api.descriptions import about
from bushel.server.api.errors import unsupported
from bushel.server.api.fields import RepetitionPenalty, Seed, whole
from bushel.server.api.sampling import SamplingFields
from bushel.server.api.shared_fields import sampled

# Values that switch each of these off.
_OFF: dict[str, float] = {
    "dry_multiplier": 0,
    "dynatemp_range": 0,
    "mirostat": 0,
    "tfs_z": 1,
    "top_n_sigma": -1,
    "typical_p": 1,
    "xtc_probability": 0,
}
_WINDOW = "repeat_last_n"  # tokens that penalties look at; -1: all of them, as here
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
    repeat_penalty: Annotated[
        RepetitionPenalty | None,
        sampled("repetition_penalty", "What llama.cpp calls `repetition_penalty`"),
    ] = None

    @model_validator(mode="after")
    def _one_name(self) -> LlamaSamplingFields:
        if self.repeat_penalty is not None:
            self.repetition_penalty = self.repeat_penalty
        return self

    @property
    def _penalises(self) -> bool:
        penalties = (self.presence_penalty, self.frequency_penalty)
        return any(penalties) or self.repetition_penalty not in (None, 1)

    def require_known_samplers(self, where: str = "") -> None:
        """InvalidField for a sampler that is on and that nobody here has. where: what its name
        stands behind.
        """
        given = self.model_extra or {}
        for name, off in _OFF.items():
            if given.get(name, off) not in (None, off):
                raise unsupported(where + name, f"is not supported by this server, unless {off}")
        if given.get(_WINDOW, -1) not in (None, -1) and self._penalises:
            raise unsupported(
                where + _WINDOW,
                "is not supported by this server, unless -1: penalties look at every token",
            )
