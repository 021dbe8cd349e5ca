"""Vision checkpoints: ways of placing an image in the prompt, times ways of keeping state.

Patches are 4 to 16 pixels wide, so pictures of 32 to 96 pixels become 4 to 40 image tokens.
"""

import json
from importlib import import_module
from itertools import chain
from pathlib import Path

from mlx_vlm.models.moondream2 import processing_moondream2
from mlx_vlm.utils import get_model_type, update_module_configs

from bushel.models.vision.processors import provide

from .checkpoint import (
    chatml,
    randomise,
    write_config,
    write_generation_config,
    write_sentencepiece,
    write_tokenizer,
    write_weights,
)
from .small_towers import shrink
from .vision_counted import COUNTED
from .vision_crops import CROPS
from .vision_cross import CROSS
from .vision_family import VisionFamily
from .vision_gemma import GEMMA
from .vision_glm import GLM
from .vision_grid import GRID
from .vision_hunyuan import HUNYUAN
from .vision_hunyuan import shrink as shrink_hunyuan
from .vision_inkling import INKLING
from .vision_llava import LLAVA
from .vision_marked import MARKED
from .vision_minicpm import MINICPM
from .vision_minimax import MINIMAX
from .vision_overviews import OVERVIEWS
from .vision_packed import PACKED
from .vision_pools import POOLS
from .vision_prefix import PREFIX
from .vision_shared import SHARED
from .vision_tiles import TILES

shrink_hunyuan()
VISION: dict[str, VisionFamily] = {
    family.name: family
    for family in chain(
        *(GRID, GLM, PACKED, MINICPM, MINIMAX, GEMMA, TILES, LLAVA, CROPS, CROSS, POOLS),
        *(COUNTED, OVERVIEWS, MARKED, PREFIX, HUNYUAN, INKLING, SHARED),
    )
}

shrink()

# Chat families of mlx-vlm that no small checkpoint is made of here, and why.
NOT_MADE = {
    "falcon_ocr": "positions and masks of its own, which Bushel does not make",
    "jina_vlm": "ids and the size of its images are written into the library's code",
    "plamo2vl": "its processor and tokenizer are its own, and write their prompt around any text",
    "youtu_vl": "mlx-vlm has no processor for it, and checkpoints bring one that needs torch",
}

# One of every way to place an image and to keep state; the others are like one of these.
EXEMPLARS = frozenset(
    (
        "qwen3_5_vl",
        "qwen2_5_vl",
        "qwen3_vl",
        "gemma3_vl",
        "gemma4_bidir",
        "smolvlm",
        "pixtral",
        "lfm2_vl",
    )
)
# Others that many people run: these are tried in every way in which rows meet and part.
COMMON = frozenset(("qwen3_5_moe_vl", "gemma4_vl", "idefics3", "glm4v"))


def make_loadable(name: str, path: Path) -> None:
    """Let this process load the checkpoint: some processors want what is not in it."""
    model_type = VISION[name].config["model_type"]
    provide(model_type)
    if model_type == "moondream2":  # it has the tokenizer of another checkpoint, of the hub
        processing_moondream2.TOKENIZER_REPO = str(path)


_PARTS = ["text", "vision", "perceiver", "projector", "audio"]


def build(name: str, path: Path) -> Path:
    """Write the checkpoint of family `name` into `path`, ready for `mlx_vlm.load`."""
    family = VISION[name]
    module = import_module(f"mlx_vlm.models.{get_model_type(family.config)}")
    params = dict(family.config)
    config = module.ModelConfig.from_dict(params)
    config = update_module_configs(config, module, params, _PARTS)
    model = module.Model(config)
    if family.config["tie_word_embeddings"]:
        # Gemma 3 makes a head even when tied; mlx-vlm would overwrite it, mlx-lm would use it.
        model.language_model.pop("lm_head", None)
    randomise(model, family.seed, family.spread)
    write_weights(path, model)
    write_config(path, family.config)
    write_generation_config(path)
    write_tokenizer(
        path,
        special=family.special,
        chat_template=chatml(family.placeholder),
        named=family.named,
    )
    if family.sentencepiece:
        write_sentencepiece(path, family.special)
    for file, value in family.files.items():
        (path / file).write_text(json.dumps(value, indent=2))
    return path
