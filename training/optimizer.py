"""Muon for the matrices inside the layers, AdamW for everything else.

Muon moves a matrix along its momentum made orthogonal, so that every direction of the update
has the same size. Matrices of one shape are made orthogonal together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

_OUTSIDE = ("embed", "pos_embed", "head.", "conv1d", "in_proj_a", "in_proj_b", "patch_embed")


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """[N, R, C] to about the nearest matrices with singular values near one."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = 3.4445, -4.7750, 2.0315
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    def __init__(self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes[tuple(weight.shape)].append(weight)
            for (rows, columns), weights in shapes.items():
                moved = orthogonal(torch.stack([self._momentum(it, group) for it in weights]))
                scale = group["lr"] * max(1.0, rows / columns) ** 0.5
                for weight, update in zip(weights, moved.unbind(), strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(update, alpha=-scale)

    def _momentum(self, weight: nn.Parameter, group: dict[str, Any]) -> Tensor:
        state = self.state[weight]
        if not state:
            state["mean"] = torch.zeros_like(weight)
        assert weight.grad is not None
        state["mean"].lerp_(weight.grad, 1 - group["momentum"])
        return weight.grad.lerp(state["mean"], group["momentum"])


def make(model: nn.Module, muon: float, adam: float, decay: float) -> list[torch.optim.Optimizer]:
    """`base` of each group times the plan's schedule is its rate; AdamW alone without `muon`."""
    inside: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    outside: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        if muon and weight.ndim == 2 and not any(part in name for part in _OUTSIDE):
            inside.append(weight)
        else:
            (outside if weight.ndim > 1 and "conv1d" not in name else vectors).append(weight)
    fused = next(model.parameters()).is_cuda
    groups = [
        {"params": outside, "weight_decay": decay, "base": adam},
        {"params": vectors, "weight_decay": 0.0, "base": adam},
    ]
    others = torch.optim.AdamW(groups, lr=adam, betas=(0.9, 0.95), fused=fused)
    if not inside:
        return [others]
    matrices = Muon(inside, muon)
    for group in matrices.param_groups:
        group.update(base=muon, weight_decay=decay)
    return [matrices, others]
