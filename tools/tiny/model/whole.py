"""The whole model and its losses on packed rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.tiny.config import Sizes
from tools.tiny.model.attend import seen_by
from tools.tiny.model.text import Ahead, Text, angles
from tools.tiny.model.vision import Vision

_TRAINED = 0.25


@dataclass
class Rows:
    """Packed rows; a row holds several documents, none of which sees another.

    ids, document, place [B, T]; positions [3, B, T]; trained [B, T] marks tokens that are
    to be predicted. pixels [N, P, 3 * patch²], grid [N, 2]; cells [N, tokens, 2] says
    what an image token shows (kind, colour), -1 where nothing is to be learned, and target
    [N, tokens] which of the B * T tokens it stands for, B * T where it stands for none.
    """

    ids: Tensor
    document: Tensor
    place: Tensor
    positions: Tensor
    trained: Tensor
    pixels: Tensor
    grid: Tensor
    cells: Tensor
    target: Tensor


class Inner(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.visual = Vision(sizes)
        self.language_model = Text(sizes)


class Tiny(nn.Module):
    def __init__(self, sizes: Sizes, kinds: int = 1, colours: int = 1):
        super().__init__()
        self.sizes = sizes
        self.model = Inner(sizes)
        self.mtp = Ahead(sizes)
        # Read what each image token shows; only training needs them.
        self.kind_head = nn.Linear(sizes.hidden, kinds)
        self.colour_head = nn.Linear(sizes.hidden, colours)
        self.apply(_initialise)
        depth = (2 * sizes.layers) ** -0.5
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
                weight.data *= depth

    def embed(self, rows: Rows) -> tuple[Tensor, Tensor]:
        features = self.model.visual(rows.pixels, rows.grid)
        words = self.model.language_model.embed_tokens(rows.ids)
        # Copied to their places, each once: gathering by token would add the gradients of all
        # other tokens, zeros, into one row, and a GPU adds those one after the other.
        flat = torch.cat([words.flatten(0, 1), words.new_zeros(1, words.shape[-1])])
        seen = features.flatten(0, 1).to(words.dtype)
        mixed = flat.index_copy(0, rows.target.flatten(), seen)[:-1]
        return mixed.reshape(words.shape), features

    def hidden(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """The last hidden states, those of the MTP layer, and the image features."""
        x, features = self.embed(rows)
        cos, sin = angles(self.sizes, rows.positions)
        half = torch.is_autocast_enabled(x.device.type)
        seen = seen_by(rows.document, torch.bfloat16 if half else x.dtype)
        out = self.model.language_model(x, rows.place, seen, cos, sin)
        after = self.model.language_model.embed_tokens(rows.ids.roll(-1, 1))
        ahead = self.mtp(out.detach(), after, rows.place, seen, cos, sin)
        return out, ahead, features

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.language_model.embed_tokens.weight)

    def losses(self, rows: Rows) -> dict[str, Tensor]:
        out, ahead, features = self.hidden(rows)
        cells = rows.cells.long()
        return {
            "text": self.predict(out, targets(rows, 1)),
            "ahead": self.predict(ahead, targets(rows, 2)),
            "kind": _labelled(self.kind_head(features), cells[..., 0]),
            "colour": _labelled(self.colour_head(features), cells[..., 1]),
        }

    def predict(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Only trained tokens get logits: a sixth of all, and never more than _TRAINED."""
        flat = targets.reshape(-1)
        first = (flat < 0).int().argsort(stable=True)[: int(_TRAINED * flat.numel())]
        return _labelled(self.logits(hidden.reshape(-1, hidden.shape[-1])[first]), flat[first])


def _labelled(logits: Tensor, wanted: Tensor) -> Tensor:
    """The mean over what is labelled; nothing at all counts as no loss."""
    flat = logits.float().reshape(-1, logits.shape[-1])
    total = F.cross_entropy(flat, wanted.reshape(-1), ignore_index=-1, reduction="sum")
    return total / (wanted >= 0).sum().clamp(min=1)


def targets(rows: Rows, ahead: int) -> Tensor:
    """The token `ahead` places on, where it is trained and of the same document."""
    same = (rows.document.roll(-ahead, 1) == rows.document) & rows.trained.roll(-ahead, 1).bool()
    same[:, -ahead:] = False
    return torch.where(same, rows.ids.roll(-ahead, 1).long(), -1)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5 * 0.6)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
