"""The vision tower over pictures of up to `Sizes.grid` patches a side, padded to that many."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.tiny.config import Sizes
from tools.tiny.model.text import rotate


class PatchEmbed(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.proj = nn.Conv3d(3, sizes.vision_width, (2, sizes.patch, sizes.patch))

    def forward(self, patches: Tensor) -> Tensor:
        """patches [N, P, 3 * patch * patch]: one frame, which stands for both."""
        kernel = self.proj.weight.sum(2).flatten(1)
        return F.linear(patches, kernel, self.proj.bias)


class VisionAttention(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.heads = sizes.vision_heads
        self.qkv = nn.Linear(sizes.vision_width, 3 * sizes.vision_width)
        self.proj = nn.Linear(sizes.vision_width, sizes.vision_width)

    def forward(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        count, patches, width = x.shape
        qkv = self.qkv(x).reshape(count, patches, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(qkv[0], cos, sin), rotate(qkv[1], cos, sin)
        out = F.scaled_dot_product_attention(q, k, qkv[2], attn_mask=mask)
        return self.proj(out.transpose(1, 2).reshape(count, patches, width))


class VisionMLP(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.linear_fc1 = nn.Linear(sizes.vision_width, sizes.vision_mlp)
        self.linear_fc2 = nn.Linear(sizes.vision_mlp, sizes.vision_width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_fc2(F.gelu(self.linear_fc1(x), approximate="tanh"))


class VisionBlock(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.norm1 = nn.LayerNorm(sizes.vision_width, eps=1e-6)
        self.norm2 = nn.LayerNorm(sizes.vision_width, eps=1e-6)
        self.attn = VisionAttention(sizes)
        self.mlp = VisionMLP(sizes)

    def forward(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), mask, cos, sin)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        width = sizes.vision_width * sizes.merge**2
        self.norm = nn.LayerNorm(sizes.vision_width, eps=1e-6)
        self.linear_fc1 = nn.Linear(width, width)
        self.linear_fc2 = nn.Linear(width, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        count, _, _ = x.shape
        x = self.norm(x).reshape(count, -1, self.linear_fc1.in_features)
        return self.linear_fc2(F.gelu(self.linear_fc1(x)))


class Vision(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        self.patch_embed = PatchEmbed(sizes)
        self.pos_embed = nn.Embedding(sizes.patches, sizes.vision_width)
        self.blocks = nn.ModuleList(VisionBlock(sizes) for _ in range(sizes.vision_depth))
        self.merger = Merger(sizes)

    def forward(self, pixels: Tensor, grid: Tensor) -> Tensor:
        """pixels uint8 [N, P, 3 * patch²], grid [N, 2] rows and columns of patches.

        Returns [N, P / merge², hidden]; what lies beyond a picture's own grid means nothing.
        """
        row, column, valid = self._places(grid)
        x = self.patch_embed(pixels.float() / 127.5 - 1.0)
        x = x + self._positions(row, column, grid)
        cos, sin = self._angles(row, column)
        mask = torch.zeros(valid.shape, dtype=torch.float32, device=x.device)
        mask = mask.masked_fill(~valid, -1e4)[:, None, None, :]
        mask = mask.expand(-1, 1, valid.shape[1], -1).to(
            torch.bfloat16 if torch.is_autocast_enabled(x.device.type) else x.dtype
        )
        for block in self.blocks:
            x = block(x, mask, cos, sin)
        return self.merger(x)

    def _places(self, grid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Patches come in blocks that are merged into one token, two by two."""
        merge = self.sizes.merge
        at = torch.arange(self.sizes.patches, device=grid.device)[None]
        block, inner = at // merge**2, at % merge**2
        across = (grid[:, 1:] // merge).clamp(min=1)
        row = (block // across) * merge + inner // merge
        column = (block % across) * merge + inner % merge
        return row, column, at < grid[:, :1] * grid[:, 1:]

    def _positions(self, row: Tensor, column: Tensor, grid: Tensor) -> Tensor:
        """Learned positions, stretched over the picture's own grid.

        Bilinear, as weights over all positions: a look-up would add many gradients into few
        rows one by one.
        """
        side = self.sizes.grid
        knots = torch.arange(side, device=grid.device)
        weights = []
        for at, place in enumerate((row, column)):
            fine = place.float() * (side - 1) / (grid[:, at : at + 1] - 1).clamp(min=1)
            fine = fine.clamp(max=side - 1)
            weights.append((1 - (fine[..., None] - knots).abs()).clamp(min=0))
        both = (weights[0][..., :, None] * weights[1][..., None, :]).flatten(2)
        return both @ self.pos_embed.weight

    def _angles(self, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        half = self.sizes.vision_width // self.sizes.vision_heads // 2
        exponent = torch.arange(0, half, 2, device=row.device).float() / half
        frequency = 10_000.0**-exponent
        angle = torch.cat([place[..., None].float() * frequency for place in (row, column)], -1)
        angle = torch.cat([angle, angle], dim=-1)[:, None]
        return angle.cos(), angle.sin()
