"""The language model: gated delta nets with full attention among them, and one MTP layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.tiny.config import Sizes
from tools.tiny.model.attend import attend
from tools.tiny.model.delta import FORGET, gated_delta


class Norm(nn.Module):
    """RMSNorm whose stored weight is the distance from one."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight * F.silu(gate.float())).to(gate.dtype)


class Convolution(nn.Module):
    """Depthwise and causal, and blind to the document before: a sum of shifted copies."""

    def __init__(self, channels: int, kernel: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel) * kernel**-0.5)

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        """`place` [B, T]: how many tokens of its document stand before each."""
        kernel = self.weight.shape[-1]
        total = x * self.weight[:, 0, -1]
        for back in range(1, kernel):
            shifted = F.pad(x, (0, 0, back, 0))[:, : x.shape[1]]
            seen = (place >= back)[..., None]
            total = total + torch.where(seen, shifted, 0) * self.weight[:, 0, -1 - back]
        return total


def _unit(x: Tensor) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class DeltaNet(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        hidden, dim = sizes.hidden, sizes.delta_dim
        self.keys, self.values = sizes.key_heads * dim, sizes.value_heads * dim
        self.in_proj_qkv = nn.Linear(hidden, 2 * self.keys + self.values, bias=False)
        self.in_proj_z = nn.Linear(hidden, self.values, bias=False)
        self.in_proj_b = nn.Linear(hidden, sizes.value_heads, bias=False)
        self.in_proj_a = nn.Linear(hidden, sizes.value_heads, bias=False)
        self.conv1d = Convolution(2 * self.keys + self.values, sizes.kernel)
        # Slow decay from the start: a fast one forgets before anything can be learned.
        self.A_log = nn.Parameter(torch.empty(sizes.value_heads).uniform_(0.01, 1.0).log())
        self.dt_bias = nn.Parameter(torch.empty(sizes.value_heads).uniform_(-4.0, -1.0))
        self.norm = GatedNorm(dim, sizes.eps)
        self.out_proj = nn.Linear(self.values, hidden, bias=False)

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        batch, length, _ = x.shape
        dim, groups = self.sizes.delta_dim, self.sizes.value_heads // self.sizes.key_heads
        mixed = F.silu(self.conv1d(self.in_proj_qkv(x), place))
        q, k, v = mixed.split([self.keys, self.keys, self.values], dim=-1)
        q = _unit(q.reshape(batch, length, -1, dim)) * dim**-0.5
        k = _unit(k.reshape(batch, length, -1, dim))
        q, k = q.repeat_interleave(groups, 2), k.repeat_interleave(groups, 2)
        v = v.reshape(batch, length, -1, dim)
        step = F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        decay = torch.where((place == 0)[..., None], FORGET, -self.A_log.float().exp() * step)
        beta = torch.sigmoid(self.in_proj_b(x).float())
        with torch.autocast(x.device.type, enabled=False):
            out = gated_delta(q, k, v, decay, beta)
        gate = self.in_proj_z(x).reshape(batch, length, -1, dim)
        return self.out_proj(self.norm(out, gate).reshape(batch, length, -1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the first `cos.shape[-1]` dimensions of x, which may have heads where cos has one."""
    width = cos.shape[-1]
    turned, kept = x[..., :width], x[..., width:]
    first, second = turned.chunk(2, dim=-1)
    turned = turned * cos + torch.cat([-second, first], dim=-1) * sin
    return torch.cat([turned.to(x.dtype), kept], dim=-1)


class Attention(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        dim, hidden = sizes.head_dim, sizes.hidden
        self.q_proj = nn.Linear(hidden, sizes.heads * dim * 2, bias=False)
        self.k_proj = nn.Linear(hidden, sizes.kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(hidden, sizes.kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(sizes.heads * dim, hidden, bias=False)
        self.q_norm = Norm(dim, sizes.eps)
        self.k_norm = Norm(dim, sizes.eps)

    def forward(self, x: Tensor, seen: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        dim = self.sizes.head_dim
        q, gate = self.q_proj(x).reshape(batch, length, -1, 2 * dim).chunk(2, dim=-1)
        q = rotate(self.q_norm(q), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).reshape(batch, length, -1, dim)), cos, sin)
        v = self.v_proj(x).reshape(batch, length, -1, dim)
        out = attend(q, k, v.to(q.dtype), seen).reshape(batch, length, -1)
        return self.o_proj(out * torch.sigmoid(gate.reshape(batch, length, -1)))


class Gated(nn.Module):
    def __init__(self, hidden: int, inner: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, sizes: Sizes, full: bool):
        super().__init__()
        if full:
            self.self_attn = Attention(sizes)
        else:
            self.linear_attn = DeltaNet(sizes)
        self.full = full
        self.mlp = Gated(sizes.hidden, sizes.mlp)
        self.input_layernorm = Norm(sizes.hidden, sizes.eps)
        self.post_attention_layernorm = Norm(sizes.hidden, sizes.eps)

    def forward(self, x: Tensor, place: Tensor, seen: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.input_layernorm(x)
        if self.full:
            x = x + self.self_attn(normed, seen, cos, sin)
        else:
            x = x + self.linear_attn(normed, place)
        return x + self.mlp(self.post_attention_layernorm(x))


class Text(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.sizes = sizes
        self.embed_tokens = nn.Embedding(sizes.vocab, sizes.hidden)
        self.layers = nn.ModuleList(
            Layer(sizes, kind == "full_attention") for kind in sizes.layer_types
        )
        self.norm = Norm(sizes.hidden, sizes.eps)

    def forward(self, x: Tensor, place: Tensor, seen: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, place, seen, cos, sin)
        return self.norm(x)


class Ahead(nn.Module):
    """The multi-token-prediction layer: a hidden state and the next token to the one after."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.fc = nn.Linear(2 * sizes.hidden, sizes.hidden, bias=False)
        self.pre_fc_norm_embedding = Norm(sizes.hidden, sizes.eps)
        self.pre_fc_norm_hidden = Norm(sizes.hidden, sizes.eps)
        self.layers = nn.ModuleList([Layer(sizes, full=True)])
        self.norm = Norm(sizes.hidden, sizes.eps)

    def forward(
        self, hidden: Tensor, after: Tensor, place: Tensor, seen: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        both = [self.pre_fc_norm_embedding(after), self.pre_fc_norm_hidden(hidden)]
        x = self.fc(torch.cat(both, dim=-1))
        for layer in self.layers:
            x = layer(x, place, seen, cos, sin)
        return self.norm(x)


def angles(sizes: Sizes, positions: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin [B, T, 1, R] for positions [3, B, T]: rows and columns interleaved with time."""
    width = int(sizes.head_dim * sizes.rotary)
    exponent = torch.arange(0, width, 2, device=positions.device).float() / width
    frequency = sizes.theta**-exponent
    axis = torch.zeros(width // 2, dtype=torch.long, device=positions.device)
    for which in (1, 2):
        axis[which : 3 * sizes.sections[which] : 3] = which
    angle = positions.float()[axis].permute(1, 2, 0) * frequency
    angle = torch.cat([angle, angle], dim=-1)[:, :, None]
    return angle.cos(), angle.sin()
