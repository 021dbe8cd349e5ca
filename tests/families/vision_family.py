"""What a family that takes images promises beyond its state, as data."""

from dataclasses import dataclass, field
from typing import Any, Literal

from .checkpoint import FIRST_SPECIAL, VOCAB
from .family import Family


@dataclass(frozen=True, kw_only=True)
class VisionFamily(Family):
    """A family that takes images.

    `placeholder` is what the chat template writes for an image and the processor expands;
    `image_token` is what it expands to, one per feature row. `files` are the processor's.
    `cuts` is what mlx-vlm's own loop makes of a prompt with images in several chunks: where
    it is wrong, only an unchunked run is a reference. `positions` are counted, or kept on
    the model object, or kept there with rows and columns for images (axes). `most_images` is
    what the processor takes. `whole_passes` says why every call of the model changes what it says,
    where that is so in mlx-vlm alone: then each token is told by a pass over all before it. An
    image that is `placed` begins with as much padding as its place in the prompt asks for.
    """

    placeholder: str
    image_token: str
    special: tuple[str, ...]
    named: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, Any]]
    image_tokens: tuple[int, int, int]  # for 32x32, 64x48 and 96x64
    cuts: Literal["exact", "refused", "wrong"] = "exact"
    positions: Literal["counted", "kept", "axes"] = "counted"
    most_images: int = 9
    sentencepiece: bool = False
    whole_passes: str = ""
    placed: bool = False

    @property
    def keeps_positions(self) -> bool:
        return self.positions != "counted"

    @property
    def image_token_id(self) -> int:
        """Behind the vocabulary where a part of an image has the id of no token."""
        return token_id(self.special, self.image_token) if self.image_token else VOCAB + 2


def token_id(special: tuple[str, ...], token: str) -> int:
    return FIRST_SPECIAL + special.index(token)


TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 8,
    "num_channels": 3,
}
PIXELS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_normalize": True}
