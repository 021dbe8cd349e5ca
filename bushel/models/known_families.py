"""Models that are served one row at a time, because a batch of them would be wrong.

Found by running every family of mlx-lm, and those of mlx-vlm that the tests have, in mixed
batches against its solo run. What can be put right from outside is put right in `library_fixes.py`;
what is left here needs a change of the model.
"""

from __future__ import annotations

from typing import Any

# By the library's module, which several model types may share.
_FAMILIES = {
    "cohere_compass": "its attention reads the window of a padded row out of order",
    "deepseek_v41": "its compressed state has no batch form",
    "hunyuan_vl": "it takes one position for all rows of a batch",
    "minimax_m3_vl": "its sparse attention cuts blocks that padding would shift",
    "mllama": "it takes one position for all rows of a batch, and one set of pictures",
    "phi3small": "its sparse attention cuts blocks that padding would shift",
}

# By the class of a part, which any family may have been configured with.
_PARTS = {
    "DynamicNTKScalingRoPE": "its rotary scaling takes one length for all rows of a batch",
}

# Families whose answer depends on how a prompt is cut, also in the library's own loop.
_CUT = {
    "mllama": "without a picture, its cross-attention looks at the piece itself",
    "paligemma": "all tokens of its prompt see one another",
    "phi3small": "its sparse attention counts blocks from the piece's beginning",
    "plamo3": "its mask is one token wider than the window it keeps",
}

# Families that are as exact in a batch as alone, by library and module: the tests have a
# checkpoint of each. One that is not here is tried at load (`engine.batching_check`).
_TEXT = """
    Klear afm7 afmoe apertus baichuan_m1 bailing_hybrid bailing_moe bailing_moe_linear cohere
    cohere2 dbrx deepseek deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5 ernie4_5_moe exaone
    exaone4 exaone_moe falcon_h1 gear gemma gemma2 gemma3 gemma3_text gemma3n gemma4 gemma4_text
    glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite
    granitemoe granitemoehybrid helium hunyuan hunyuan_v1_dense internlm2 internlm3 iquestloopcoder
    jamba kimi_k25 kimi_k3 kimi_linear kimi_vl laguna lfm2 lfm2-vl lfm2_moe lille-130m llama llama4
    llama4_text longcat_flash longcat_flash_ngram mamba mamba2 mellum mimo mimo_v2_flash minicpm
    minicpm3 minimax ministral3 mistral3 mistral4 mixtral muse_glimmer nanbeige nanochat nemotron
    nemotron-nas nemotron_h olmo2 olmo3 olmo_hybrid olmoe openelm phi phi3 phimoe phixtral pixtral
    plamo plamo2 plamo3 prism_hadamard_qwen35 qwen qwen2 qwen2_moe qwen2_vl qwen3 qwen3_5
    qwen3_5_moe qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe recurrent_gemma rwkv7 seed_oss smollm3
    spark2_5 stablelm starcoder2 step3p5 talkie telechat3 youtu_llm
"""
_VISION = """
    aya_vision ernie4_5_moe_vl gemma3 gemma4 glm4v glm4v_moe glm_ocr idefics2 idefics3
    internvl_chat kimi_vl lfm2_vl llava_onevision mimo_v2 minicpmo minicpmv4_6 minicpmv4_7
    mistral3 mistral_large3 molmo molmo2 moondream2 moondream3 multi_modality
    nemotron_h_nano_omni paddleocr_vl paligemma phi3_v phi4_siglip phi4mm pixtral qwen2_5_vl
    qwen2_vl qwen3_5 qwen3_5_moe qwen3_omni_moe qwen3_vl qwen3_vl_moe smolvlm step3p7 zaya1_vl
"""
_EXACT = {"mlx_lm": frozenset(_TEXT.split()), "mlx_vlm": frozenset(_VISION.split())}


def single_because(network: Any) -> str | None:
    """Why rows of this network cannot share a batch, or None if nothing is known against it."""
    family = family_of(network)
    if family in _FAMILIES:
        return _FAMILIES[family]
    if family == "nemotron-nas" and _masked_by_a_linear_map(network):
        return "it takes its mask from a layer that keeps no keys"
    parts = (type(part).__name__ for part in network.modules())
    return next((_PARTS[name] for name in parts if name in _PARTS), None)


def cuts_matter(network: Any) -> str | None:
    """Why this network's answers depend on how prompts are cut into chunks, if they do."""
    return _CUT.get(family_of(network))


def batches_exactly(network: Any) -> bool:
    """Whether this family is known to; code that a checkpoint brings never is."""
    library = type(network).__module__.partition(".")[0]
    return family_of(network) in _EXACT.get(library, ())


def family_of(network: Any) -> str:
    return type(network).__module__.rpartition(".")[2]


def _masked_by_a_linear_map(network: Any) -> bool:
    mixers = (layer.self_attn for layer in network.layers if layer.self_attn is not None)
    return hasattr(next(mixers, None), "linear")
