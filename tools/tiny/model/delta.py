"""The gated delta rule over chunks, in plain matrix products.

A state H (keys x values) per head goes through every token:

    H <- g H;  H <- H + k (beta (v - k'H))';  y = q'H

Within a chunk this is one triangular system, solved for all chunks together; over a chunk the
state changes by an affine map, H <- P H + R, and only those maps run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

CHUNK = 64
# Powers inside larger blocks reach 1e17 where keys repeat, which float32 cannot cancel.
_BLOCK = 16
# The log of the decay at a document's first token: nothing of the one before remains.
FORGET = -40.0


@torch.library.custom_op("training::invert", mutates_args=())
def invert_unit_lower(strict: Tensor) -> Tensor:
    """The inverse of I + `strict` [N, CHUNK, CHUNK], which is strictly lower triangular."""
    with _exact_products():
        return _inverse(strict)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Full float32, where the rest of a run may use the ten bits of TF32."""
    chosen = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def _inverse(strict: Tensor) -> Tensor:
    count, size, _ = strict.shape
    blocks = size // _BLOCK
    tiles = strict.reshape(count, blocks, _BLOCK, blocks, _BLOCK)
    at = torch.arange(blocks, device=strict.device)
    power = tiles[:, at, :, at].transpose(0, 1).reshape(-1, _BLOCK, _BLOCK)
    eye = torch.eye(_BLOCK, dtype=strict.dtype, device=strict.device)
    leaves = eye - power
    for _ in range((_BLOCK - 1).bit_length() - 1):
        power = torch.bmm(power, power)
        leaves = torch.baddbmm(leaves, leaves, power)
    done = torch.zeros_like(strict)
    done.reshape(tiles.shape)[:, at, :, at] = leaves.reshape(count, blocks, _BLOCK, -1).transpose(
        0, 1
    )
    width = _BLOCK
    while width < size:  # two neighbours and the square below the first make one
        for top in range(0, size, 2 * width):
            one, two = slice(top, top + width), slice(top + width, top + 2 * width)
            corner = torch.bmm(torch.bmm(done[:, two, two], strict[:, two, one]), done[:, one, one])
            done[:, two, one] = -corner
        width *= 2
    return done


@invert_unit_lower.register_fake
def _(strict: Tensor) -> Tensor:
    return torch.empty_like(strict)


def _keep_inverse(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _invert_backward(ctx: Any, grad: Tensor) -> Tensor:
    (inverse,) = ctx.saved_tensors
    return -torch.bmm(torch.bmm(inverse.mT, grad), inverse.mT).tril(-1)


invert_unit_lower.register_autograd(_invert_backward, setup_context=_keep_inverse)


@torch.library.custom_op("training::carry", mutates_args=())
def carry(factor: Tensor, added: Tensor) -> Tensor:
    """The state before each chunk: [N, C, K, V] from factors [N, C, K, K] and [N, C, K, V]."""
    before = torch.zeros_like(added)
    for at in range(1, added.shape[1]):
        last = at - 1
        torch.baddbmm(added[:, last], factor[:, last], before[:, last], out=before[:, at])
    return before


@carry.register_fake
def _(factor: Tensor, added: Tensor) -> Tensor:
    return torch.empty_like(added)


@torch.library.custom_op("training::carry_back", mutates_args=())
def carry_back(grad: Tensor, factor: Tensor) -> Tensor:
    """What each chunk's added part is worth, given what each state before a chunk is worth."""
    worth = torch.zeros_like(grad)
    for at in range(grad.shape[1] - 1, 0, -1):
        torch.baddbmm(grad[:, at], factor[:, at].mT, worth[:, at], out=worth[:, at - 1])
    return worth


@carry_back.register_fake
def _(grad: Tensor, factor: Tensor) -> Tensor:
    return torch.empty_like(grad)


def _keep_states(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0], output)


def _carry_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    factor, before = ctx.saved_tensors
    worth = carry_back(grad.contiguous(), factor)
    return worth @ before.mT, worth


carry.register_autograd(_carry_backward, setup_context=_keep_states)


def gated_delta(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """q, k, v: [B, T, H, D] with T a multiple of CHUNK; log_decay, beta: [B, T, H]."""
    batch, length, heads, dim = v.shape
    keys, count = k.shape[-1], length // CHUNK

    def chunks(x: Tensor) -> Tensor:
        """[B H chunks, CHUNK, D]"""
        x = x.float().reshape(batch, count, CHUNK, heads, -1).permute(0, 3, 1, 2, 4)
        return x.reshape(batch * heads * count, CHUNK, -1)

    q, k, v = chunks(q), chunks(k), chunks(v)
    beta = chunks(beta)
    decay = chunks(log_decay)[..., 0].cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    ratio = (decay[..., :, None] - decay[..., None, :]).masked_fill(~lower, -1e30).exp()
    since = decay.exp()[..., None]
    overlap = (beta * ratio * torch.bmm(k, k.mT)).tril(-1)
    right = torch.cat([beta * since * k, beta * v], dim=-1)
    solved = torch.bmm(invert_unit_lower(overlap), right)
    mixed = torch.bmm(ratio * torch.bmm(q, k.mT), solved)
    until = (decay[..., -1:] - decay).exp()[..., None]
    change = torch.bmm((until * k).mT, solved)
    eye = torch.eye(keys, dtype=v.dtype, device=v.device)
    factor = (since[:, -1:] * eye - change[..., :keys]).reshape(-1, count, keys, keys)
    added = change[..., keys:].reshape(-1, count, keys, dim)
    before = carry(factor.contiguous(), added.contiguous()).reshape(-1, keys, dim)
    out = torch.baddbmm(mixed[..., keys:], since * q - mixed[..., :keys], before)
    out = out.reshape(batch, heads, count, CHUNK, dim).permute(0, 2, 3, 1, 4)
    return out.reshape(batch, length, heads, dim)
