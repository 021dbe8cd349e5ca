"""A few steps on the CPU, and the exported checkpoint against mlx-vlm; needs PyTorch."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tools.tiny import data, pack
from tools.tiny.config import Sizes
from tools.tiny.data import Shards, join
from tools.tiny.export import exported
from tools.tiny.model.attend import edges
from tools.tiny.model.delta import CHUNK, FORGET, gated_delta
from tools.tiny.model.whole import Tiny
from tools.tiny.optimizer import orthogonal
from tools.tiny.pack import Shape
from tools.tiny.plan import Plan
from tools.tiny.train import train

TINY = Path(__file__).parents[3] / "bushel" / "tiny"
SMALL = Shape(rows=1, length=512, pictures=8)


def token_by_token(q, k, v, log_decay, beta):
    state = torch.zeros(*k.shape[::2], k.shape[-1], v.shape[-1])
    out = []
    for at in range(q.shape[1]):
        state = state * log_decay[:, at].exp()[..., None, None]
        known = torch.einsum("bhk,bhkv->bhv", k[:, at], state)
        news = (v[:, at] - known) * beta[:, at][..., None]
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, at], news)
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, at], state))
    return torch.stack(out, 1)


def test_the_chunked_rule_is_the_rule_with_its_gradients() -> None:
    torch.manual_seed(0)
    shape = (2, 3 * CHUNK, 2, 32)
    q, k = (F.normalize(torch.randn(shape), dim=-1) for _ in "qk")
    k[:, 20:50] = k[:, 20:21]  # the same key again and again
    log_decay, beta = -0.3 * torch.rand(shape[:3]), torch.rand(shape[:3])
    log_decay[:, 100] = FORGET
    inputs = [it.requires_grad_() for it in (q, k, torch.randn(shape), log_decay, beta)]
    weight = torch.randn(shape)
    mine, theirs = gated_delta(*inputs), token_by_token(*inputs)
    assert (mine - theirs).abs().max() < 1e-4
    grads = [torch.autograd.grad((out * weight).sum(), inputs) for out in (mine, theirs)]
    for one, other in zip(*grads, strict=True):
        assert (one - other).abs().max() < 1e-4 * other.abs().max()


def test_documents_in_a_row_do_not_see_each_other() -> None:
    torch.manual_seed(0)
    model = Tiny(Sizes())
    rows = join([next(iter(Shards(TINY, 3, False, 0, SMALL)))])
    second = rows.document == 2
    changed = replace(rows, ids=torch.where(rows.document == 1, 100, rows.ids))
    with torch.no_grad():
        outs = [model.hidden(it)[0] for it in (rows, changed)]
    assert torch.allclose(outs[0][second], outs[1][second], atol=1e-3)
    assert not torch.allclose(outs[0][rows.document == 1], outs[1][rows.document == 1])


def test_edges_are_where_documents_begin_also_in_the_next_row() -> None:
    document = torch.tensor([[1, 1, 2, 0], [1, 1, 1, 2]])
    found = edges(document).tolist()
    assert found[:5] == [0, 2, 3, 4, 7]
    assert set(found[5:]) == {8}
    assert len(edges(document)) == len(edges(document * 0))


def test_muon_moves_along_every_direction_alike() -> None:
    torch.manual_seed(0)
    for shape in ((2, 16, 48), (2, 48, 16)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
        assert 0.5 < values.min() < values.max() < 1.4


@pytest.mark.parametrize("muon", [0.0, 0.02])
def test_a_few_steps_reduce_the_loss_and_a_leg_continues(
    tmp_path, monkeypatch, capsys, muon: float
) -> None:
    for module in (data, pack):
        monkeypatch.setattr(module, "SHORT", SMALL)
        monkeypatch.setattr(module, "LONG", SMALL)
    monkeypatch.setattr("tools.tiny.train.LOG_EVERY", 4)
    plan = replace(Plan(), steps=8, together=1, fresh=1, warmup=4, probe_every=100, muon=muon)
    assert train(plan, tmp_path, TINY, 5, 0, "cpu")
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [entry["text"] for entry in log if "text" in entry]
    assert losses[-1] < losses[0] - 0.5
    longer = replace(plan, steps=12)
    assert train(longer, tmp_path, TINY, 5, 0, "cpu")
    assert "step 8 of 12" in capsys.readouterr().out
    assert (tmp_path / "checkpoint" / "model.safetensors").stat().st_size < 16e6


def test_the_export_holds_every_weight_and_fits() -> None:
    model = Tiny(Sizes(), 3, 3)
    weights = exported(model.state_dict(), torch.bfloat16)
    assert sum(it.numel() for it in weights.values()) < 8e6
    assert not any("head" in name for name in weights)
    assert {name.split(".")[0] for name in weights} == {"model", "mtp"}


@pytest.mark.skipif("BUSHEL_TEST_PYTHON" not in os.environ, reason="needs a Python with mlx-vlm")
def test_mlx_gives_the_same_logits(tmp_path) -> None:
    script = Path(__file__).with_name("parity.py")
    subprocess.run([sys.executable, script, "write", str(tmp_path)], check=True)
    subprocess.run([os.environ["BUSHEL_TEST_PYTHON"], script, "read", str(tmp_path)], check=True)
