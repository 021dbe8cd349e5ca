"""Prompts whose images have been seen before, or need not be seen at all.

prompt   tokens … [image 1] tokens … [image 2] tokens … [image 3] tokens
start                                |-> only this is run
needed                               [ known  ]         [ encoded, and known from now on ]

A prompt that is spliced from records of its images has to be what the library makes of it. That
is proven on the first one of each kind, which goes to the tower as a whole: where it fails, the
tower sees every prompt. So is whether images can be encoded one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import mlx.core as mx

from bushel.core import Prepared, public_message
from bushel.models.device import raise_device_fault
from bushel.models.model import Features, Prompt
from bushel.models.vision.feature_records import (
    Places,
    Record,
    difference,
    distance,
    fits,
    joint_keys,
    key_of,
    record_of,
    spliced,
)
from bushel.models.vision.image_spans import EMBEDS, Embedded, Span, runs_inside
from bushel.models.vision.split_images import tensors_of_each

log = logging.getLogger(__name__)

Kind = frozenset[str]  # the tensors a prompt comes with
Parts = list[dict[str, Any]]  # those of each image

_NOT_CUT: Kind = frozenset()
# How far apart sums in another order may be, of the norm, in steps of the number type: 3 % in
# bfloat16. Another image is as far away as the norm itself.
_ROUNDING, _LEAST = 4, 1e-5


class ImageEncoder(Protocol):
    """The model, as it looks at prompts."""

    def encode_images(self, ids: tuple[int, ...], tensors: Mapping[str, Any]) -> Embedded:
        """By the vision tower; positions may be left on the model for `assemble`."""

    def embed_text_only(self, prepared: Prepared) -> Embedded:
        """Without any pixels; as `encode_images` where no image is."""

    def assemble(self, prepared: Prepared, embedded: Embedded) -> Prompt: ...

    def spans(self, prepared: Prepared) -> tuple[Span, ...]: ...

    def packs(self, prepared: Prepared) -> frozenset[str]:
        """The tensors by which `encode_images` encodes every image by itself, if it does."""

    def kinds(self, prepared: Prepared) -> list[str]:
        """Of each medium: image or video."""

    def forget(self) -> None:
        """Drop what a look left on the model."""


class FeatureCache:
    def __init__(self, encoder: ImageEncoder):
        self._encoder = encoder
        self._proven: dict[Kind, str] = {}  # why prompts cannot be spliced; nothing if they can
        self._cut: dict[Kind, Kind] = {}  # the tensors that divide by image

    @property
    def reason(self) -> str:
        return next((reason for reason in self._proven.values() if reason), "")

    def embed(self, prepared: Prepared, start: int, features: Features | None) -> Prompt:
        reason = self._proven.get(_kind(prepared))
        if reason == "" and (known := self._recalled(prepared, start, features)):
            return known
        embedded = self._encoder.encode_images(prepared.ids, prepared.tensors)
        prompt = self._encoder.assemble(prepared, embedded)
        if not reason:
            self._learn(prepared, embedded, prompt, features)
        return prompt

    def _recalled(self, prepared: Prepared, start: int, features: Features | None) -> Prompt | None:
        """None if the tower has to see the whole prompt."""
        try:
            records = self._records(prepared, start, features)
            return None if records is None else self._spliced(prepared, records)
        except Exception as error:  # what fails here may not fail there
            raise_device_fault(error)
            log.warning(
                "A prompt could not be put together from known images: %s", public_message(error)
            )
            self._encoder.forget()
            return None

    def _records(
        self, prepared: Prepared, start: int, features: Features | None
    ) -> dict[int, Record] | None:
        """Of all images that are needed; None if the tower has to see the whole prompt."""
        needed = [at for at, image in enumerate(prepared.media) if image.end > start]
        if not needed:
            return {}
        places, (parts, keys) = self._places(prepared), self._parts(prepared)
        known_records: dict[str, Record] = {}
        new: dict[str, Record] = {}
        for at in needed:
            known = features.get(keys[at]) if features is not None else None
            if known is not None and fits(known, places[at]):
                known_records[keys[at]] = known
            elif len(prepared.media) == 1 or not parts:
                return None
            elif keys[at] not in new:
                new[keys[at]] = self._encode(prepared, at, parts[at])
        self._keep(new, features)
        return {at: (known_records | new)[keys[at]] for at in needed}

    def _keep(self, records: Mapping[str, Record], features: Features | None) -> None:
        if features is not None:
            mx.eval(list(records.values()))
            for key, record in records.items():
                features.put(key, record)

    def _places(self, prepared: Prepared) -> list[Places]:
        spans = self._encoder.spans(prepared)
        return [
            [at for low, high in runs_inside(image, spans) for at in range(low, high)]
            for image in prepared.media
        ]

    def _parts(self, prepared: Prepared) -> tuple[Parts, list[str]]:
        """Tensors and key of each image; no tensors where images cannot be encoded apart."""
        parts, cut = self._divided(prepared)
        media = prepared.media
        if len(media) > 1:
            packs = self._encoder.packs(prepared)
            packed = packs and cut >= packs
            if not packed and (not cut or self._cut.get(_kind(prepared)) != cut):
                return [], joint_keys(media)
        return parts, [key_of(image, part) for image, part in zip(media, parts, strict=True)]

    def _divided(self, prepared: Prepared) -> tuple[Parts, Kind]:
        encoder = self._encoder
        return tensors_of_each(prepared, encoder.spans(prepared), encoder.kinds(prepared))

    def _encode(self, prepared: Prepared, at: int, tensors: Mapping[str, Any]) -> Record:
        low, high = prepared.media[at].start, prepared.media[at].end
        embedded = self._encoder.encode_images(prepared.ids[low:high], tensors)
        self._encoder.forget()
        return record_of(embedded, [place - low for place in self._places(prepared)[at]])

    def _spliced(self, prepared: Prepared, records: Mapping[int, Record]) -> Prompt:
        places = self._places(prepared)
        placed = [(places[at], record) for at, record in records.items()]
        return self._encoder.assemble(
            prepared, spliced(self._encoder.embed_text_only(prepared), placed)
        )

    def _learn(
        self, prepared: Prepared, embedded: Embedded, prompt: Prompt, features: Features | None
    ) -> None:
        """From a prompt that the tower has seen."""
        kind = _kind(prepared)
        records = dict(enumerate(record_of(embedded, place) for place in self._places(prepared)))
        together = len(records) > 1 and not self._encoder.packs(prepared) and kind not in self._cut
        if kind not in self._proven or together:
            self._proven[kind] = self._why_not(prepared, records, prompt)
        if self._proven[kind]:
            return
        if together:
            self._cut[kind] = self._try_apart(prepared, records)
        _, keys = self._parts(prepared)
        self._keep({keys[at]: record for at, record in records.items()}, features)

    def _why_not(self, prepared: Prepared, records: Mapping[int, Record], prompt: Prompt) -> str:
        """Why a prompt cannot be spliced; nothing if it can."""
        try:
            other = difference(prompt, self._spliced(prepared, records))
        except Exception as error:  # a library that cannot look without pixels says so in any way
            raise_device_fault(error)
            self._encoder.forget()
            return f"A look without pixels fails: {public_message(error)}"
        return other and f"A look without pixels finds other {other}."

    def _try_apart(self, prepared: Prepared, records: Mapping[int, Record]) -> Kind:
        """The tensors to cut so that each image alone gives what it gave with the others."""
        parts, cut = self._divided(prepared)
        try:
            for at, part in enumerate(parts):
                alone = self._encode(prepared, at, part)
                if distance(records[at], alone) > _rounding(alone):
                    return _NOT_CUT
        except Exception as error:  # tensors that are cut wrongly fit nowhere
            raise_device_fault(error)
            self._encoder.forget()
            return _NOT_CUT
        return cut


def _kind(prepared: Prepared) -> Kind:
    return frozenset(prepared.tensors)


def _rounding(record: Record) -> float:
    return max(_ROUNDING * float(mx.finfo(record[EMBEDS].dtype).eps), _LEAST)
