"""What a family that takes images promises beyond its state, as data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .checkpoint import SPECIAL, VOCAB
from .family import Family


@dataclass(frozen=True, kw_only=True)
class VisionFamily(Family):
    """A family that takes images.

    `placeholder` is what the chat template writes for an image and the processor expands;
    `image_token` is what it expands to, one per feature row. `files` are the processor's.
    `cuts` is what mlx-vlm's own loop makes of a prompt with images in several chunks: where
    it is wrong, only an unchunked run is a reference; so it is where Bushel keeps images whole
    because of that; where it refuses them always, that of a text too is run whole, and the last
    token twice. `positions` are counted, or kept on
    the model object, or kept there with rows and columns for images (axes). `most_images` is
    what the processor takes, `added_tokens` how many of its own it adds to the vocabulary, and
    `mark` the one id that the library has for an image where the network makes many of it; `room`
    is that many, where it is the same for all. `whole_passes` says why every call of the model
    changes what it says, where that is so in mlx-vlm alone: then each token is told by a pass over
    all before it. `mended` families have images that the library's own code puts in wrong places:
    the reference sees them through another family's.
    An image that is `placed` begins with as much padding as its place in the prompt asks for.
    `pool` is how many tokens the largest pool of a layer takes, where prompts have fewer.
    """

    library: Literal["mlx_lm", "mlx_vlm"] = "mlx_vlm"
    placeholder: str
    image_token: str
    special: tuple[str, ...]
    named: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, Any]]
    image_tokens: tuple[int, int, int]  # for 32x32, 64x48 and 96x64
    cuts: Literal["exact", "refused", "always refused", "wrong", "whole"] = "exact"
    positions: Literal["counted", "kept", "axes"] = "counted"
    most_images: int = 9
    added_tokens: int = 0
    mark: int | None = None
    sentencepiece: bool = False
    whole_passes: str = ""
    room: int = 1
    mended: bool = False
    placed: bool = False
    pool: int = 0

    @property
    def keeps_positions(self) -> bool:
        return self.positions != "counted"

    @property
    def cuts_of_text(self) -> str:
        return self.cuts if self.cuts == "always refused" else "exact"

    @property
    def image_token_id(self) -> int:
        """Behind the vocabulary where a part of an image has the id of no token."""
        if self.room > 1:
            return int(self.config["image_token_index"])
        return token_id(self.special, self.image_token) if self.image_token else VOCAB + 2

    def with_room(self, ids: Sequence[int]) -> list[int]:
        """A prompt's ids, as many as there are tokens inside the network."""
        counts = (self.room if token == self.image_token_id else 1 for token in ids)
        return [token for token, count in zip(ids, counts, strict=True) for _ in range(count)]


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
