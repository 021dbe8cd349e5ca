"""Text checkpoints: every kind of state there is, two layers or more of each kind."""

import json
from importlib import import_module
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
from mlx_lm.utils import _get_classes

from .checkpoint import (
    randomise,
    write_arrays,
    write_config,
    write_generation_config,
    write_tokenizer,
    write_weights,
)
from .config_fragments import BASE, CONV, DELTA, EXPERTS, FULL, LINEAR, MLA, SLIDING, WINDOW
from .family import Family
from .text_attention import ATTENTION
from .text_experts import EXPERT
from .text_hybrid import HYBRID
from .text_latent import LATENTS
from .text_of_vlm import OF_VLM
from .text_quantized import QUANTIZED, packed_checkpoint
from .text_sparse import SPARSE
from .text_window import WINDOWED

__all__ = [
    "BASE",
    "COMMON",
    "CONV",
    "CORE",
    "DELTA",
    "EXPERTS",
    "FULL",
    "LINEAR",
    "MLA",
    "SLIDING",
    "TEXT",
    "WINDOW",
    "build",
    "load_network",
    "network",
]

TEXT: dict[str, Family] = {
    family.name: family
    for family in (
        *ATTENTION,
        *EXPERT,
        *WINDOWED,
        *HYBRID,
        *LATENTS,
        *SPARSE,
        *OF_VLM,
        *QUANTIZED,
    )
}

# Every kind in every company it keeps: these go through all that the tests know. The others
# are here because each is a program of its own, and go through a short form of it.
CORE = (
    "llama",
    "llama_sliding",
    "qwen3_5",
    "gemma3_text",
    "gemma4_text",
    "gpt_oss",
    "mamba2",
    "falcon_h1",
    "lfm2",
    "rwkv7",
    "recurrent_gemma",
    "deepseek_v3",
)
# Others that many people run: these are tried in every way in which rows meet and part.
COMMON = (
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5_moe",
    "jamba",
    "nemotron_h",
    "olmo_hybrid",
    "kimi_linear",
)


def load_network(name: str, path: Path) -> nn.Module:
    """By the library that has the family."""
    if TEXT[name].library == "mlx_lm":
        return mlx_lm.load(str(path))[0]
    from mlx_vlm.utils import load_model

    model = load_model(path)
    if name == "molmo_point":  # the library reads its weights as float16
        model.set_dtype(mx.float32)
    return model


def _bare(family: Family) -> nn.Module:
    if family.library == "mlx_lm":
        model_class, args_class = _get_classes(family.config)
        return model_class(args_class.from_dict(family.config))
    module = import_module(f"mlx_vlm.models.{family.config['model_type']}")
    return module.Model(module.ModelConfig.from_dict(dict(family.config)))


def network(family: Family) -> nn.Module:
    """With the family's weights, before they are packed."""
    model = _bare(family)
    if family.config["tie_word_embeddings"]:
        # Gemma makes a head even when tied, and ties only if the checkpoint has none.
        model.pop("lm_head", None)
    randomise(model, family.seed, family.spread)
    return model


def build(name: str, path: Path) -> Path:
    """Write the checkpoint of family `name` into `path`, ready for its library's loader."""
    family = TEXT[name]
    model, config = network(family), family.config
    if family.packed:
        arrays, config = packed_checkpoint(model, family)
        write_arrays(path, arrays)
    else:
        write_weights(path, model)
    write_config(path, config)
    for file in family.config.get("configuration_files", ()):
        # What transformers reads instead of config.json.
        (path / file).write_text(json.dumps({"model_type": name}))
    write_generation_config(path)
    write_tokenizer(path)
    return path
