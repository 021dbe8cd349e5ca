"""Mistakes in how tokens along a draft are drawn, made on purpose."""

from typing import Any

import pytest

from bushel.engine.sampling.sampler import Sampler


def number_of_another_place(patch: pytest.MonkeyPatch) -> None:
    """What each place is drawn with is that of the place after it."""
    sample_along = Sampler.sample_along

    def wrong(sampler: Sampler, *args: Any, **more: Any) -> Any:
        *others, positions = args
        return sample_along(sampler, *others, [at + 1 for at in positions], **more)

    patch.setattr(Sampler, "sample_along", wrong)
