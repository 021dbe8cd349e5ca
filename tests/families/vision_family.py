"""What a family that takes images promises beyond its state, as data."""

from dataclasses import dataclass, field
from typing import Any, Literal

from .checkpoint import SPECIAL
from .family import Family


@dataclass(frozen=True, kw_only=True)
class VisionFamily(Family):
    """A family that takes images.

    `placeholder` is what the chat template writes for an image and the processor expands;
    `image_token` is what it expands to, one per feature row. `files` are the processor's.
    `cuts` is what mlx-vlm's own loop makes of a prompt with images in several chunks: where
    it is wrong, only an unchunked run is a reference; where it refuses them always, that of a
    text too is run whole, and the last token twice. `positions` are counted, or kept on
    the model object, or kept there with rows and columns for images (axes). `most_images` is
    what the processor takes, `added_tokens` how many of its own it adds to the vocabulary, and
    `mark` the one id that the library has for an image where the network makes many of it.
    """

    placeholder: str
    image_token: str
    special: tuple[str, ...]
    named: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, Any]]
    image_tokens: tuple[int, int, int]  # for 32x32, 64x48 and 96x64
    cuts: Literal["exact", "refused", "always refused", "wrong"] = "exact"
    positions: Literal["counted", "kept", "axes"] = "counted"
    most_images: int = 9
    added_tokens: int = 0
    mark: int | None = None
    sentencepiece: bool = False

    @property
    def keeps_positions(self) -> bool:
        return self.positions != "counted"

    @property
    def cuts_of_text(self) -> str:
        return self.cuts if self.cuts == "always refused" else "exact"

    @property
    def image_token_id(self) -> int:
        return token_id(self.special, self.image_token)


def token_id(special: tuple[str, ...], token: str) -> int:
    return (*SPECIAL, *special).index(token)


TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 8,
    "num_channels": 3,
}
PIXELS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_normalize": True}
