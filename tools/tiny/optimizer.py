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
            keep = 1 - group["lr"] * group["weight_decay"]
            for (rows, columns), weights in shapes.items():
                moved = orthogonal(torch.stack(self._momentum(weights, group["momentum"])))
                moved *= group["lr"] * max(1.0, rows / columns) ** 0.5
                torch._foreach_mul_(weights, keep)
                torch._foreach_sub_(weights, moved.unbind())

    def _momentum(self, weights: list[nn.Parameter], momentum: float) -> list[Tensor]:
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["mean"] = torch.zeros_like(weight)
        means = [self.state[weight]["mean"] for weight in weights]
        grads = [weight.grad for weight in weights]
        torch._foreach_lerp_(means, grads, 1 - momentum)
        return list(torch._foreach_lerp(grads, means, momentum))


def make(model: nn.Module, muon: float, adam: float, decay: float) -> list[torch.optim.Optimizer]:
    """`base` of each group times the plan's share is its rate; AdamW alone without `muon`."""
    inside: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    outside: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        if muon and weight.ndim == 2 and not any(part in name for part in _OUTSIDE):
            inside.append(weight)
        else:
            (outside if weight.ndim > 1 and "conv1d" not in name else vectors).append(weight)
    one = next(model.parameters())
    # A recorded step reads its rates from tensors.
    rates = [
        torch.tensor(it, device=one.device) if one.is_cuda else it for it in (adam, adam, muon)
    ]
    groups = [
        {"params": outside, "weight_decay": decay, "base": adam, "lr": rates[0]},
        {"params": vectors, "weight_decay": 0.0, "base": adam, "lr": rates[1]},
    ]
    others = torch.optim.AdamW(
        groups, lr=adam, betas=(0.9, 0.95), fused=one.is_cuda, capturable=one.is_cuda
    )
    if not inside:
        return [others]
    matrices = Muon(inside, muon)
    for group in matrices.param_groups:
        group.update(base=muon, weight_decay=decay, lr=rates[2])
    return [matrices, others]


def set_rates(optimizers: Iterable[torch.optim.Optimizer], share: float) -> None:
    for one in optimizers:
        for group in one.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(group["base"] * share)
            else:
                group["lr"] = group["base"] * share
