"""A trained model as a checkpoint directory in Hugging Face's layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tools.tiny.config import END_OF_TEXT, IM_END, SPECIAL, Sizes, preprocessor_config

_TRAINING_ONLY = ("kind_head.", "colour_head.")


def exported(state: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """The decay stays in float32, as the libraries keep it; all else is of `dtype`."""
    kept = {name: value for name, value in state.items() if not name.startswith(_TRAINING_ONLY)}
    return {
        name: value.detach()
        .cpu()
        .to(torch.float32 if name.endswith("A_log") else dtype)
        .contiguous()
        for name, value in kept.items()
    }


def write_checkpoint(
    path: Path, sizes: Sizes, state: dict[str, Tensor], dtype: torch.dtype = torch.bfloat16
) -> None:
    """Weights and configuration; the tokenizer and the template are already there."""
    path.mkdir(parents=True, exist_ok=True)
    save_file(exported(state, dtype), path / "model.safetensors", metadata={"format": "pt"})
    config = sizes.to_config()
    config["dtype"] = str(dtype).removeprefix("torch.")
    _write(path / "config.json", config)
    _write(path / "preprocessor_config.json", preprocessor_config(sizes))
    ends = [SPECIAL.index(IM_END), SPECIAL.index(END_OF_TEXT)]
    _write(
        path / "generation_config.json",
        {"eos_token_id": ends, "pad_token_id": ends[1], "temperature": 0.0, "do_sample": False},
    )


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
