"""Attention among the documents of packed rows, none of which sees another.

On a GPU it runs over documents of their own lengths, elsewhere over whole rows with a mask.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

# A shard of 16,384 tokens holds about 70 documents, and a step three shards.
_DOCUMENTS = 1023


def seen_by(document: Tensor, dtype: torch.dtype) -> Tensor:
    """What `attend` needs of `document` [B, T]: where documents begin, or a mask."""
    return edges(document) if document.is_cuda else visible(document, dtype)


def edges(document: Tensor) -> Tensor:
    """Where each document of the flattened rows begins, then their end, as int32.

    Always as many for rows of one shape: after the last document come empty ones.
    """
    total = document.numel()
    first = torch.ones_like(document, dtype=torch.bool)
    first[:, 1:] = document[:, 1:] != document[:, :-1]
    at = torch.arange(total, device=document.device)
    begins = torch.where(first.flatten(), at, total).sort().values[: _DOCUMENTS + 1]
    return F.pad(begins, (0, 1), value=total).int()


def visible(document: Tensor, dtype: torch.dtype) -> Tensor:
    """An additive mask [B, 1, T, T]: earlier tokens of the same document."""
    length = document.shape[1]
    same = document[:, :, None] == document[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool, device=document.device).tril()
    mask = torch.zeros(same.shape, dtype=dtype, device=document.device)
    return mask.masked_fill(~(same & causal), float("-inf"))[:, None]


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """q [B, T, H, D], k and v [B, T, G, D] with G a part of H, `seen` from `seen_by`."""
    batch, length, heads, dim = q.shape
    if seen.ndim == 1:
        flat = [it.reshape(batch * length, -1, dim) for it in (q, k, v)]
        found = torch.ops.aten._flash_attention_forward(
            *flat, seen, seen, length, length, 0.0, True, False
        )
        return found[0].reshape(q.shape)
    groups = heads // k.shape[2]
    k, v = (it.repeat_interleave(groups, 2).transpose(1, 2) for it in (k, v))
    return F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=seen).transpose(1, 2)
