"""What is known of families: which are exact in a batch, and which are not, or not in pieces.

Found by running every family of mlx-lm, and those of mlx-vlm that the tests have, in mixed
batches against its solo run. What a batch would get wrong is put right from outside
(`library_fixes.py`), so far for all of them.
"""

from __future__ import annotations

from typing import Any

# Served one row at a time, and why: by the library's module, which several model types may share.
# For families that the trial at load, which is short and shows no picture, would take for exact.
_FAMILIES: dict[str, str] = {}

# Families whose answer depends on how a prompt is cut, also in the library's own loop.
_CUT = {
    "mllama": "without a picture, its cross-attention looks at the piece itself",
    "paligemma": "all tokens of its prompt see one another",
    "phi3small": "its sparse attention counts blocks from the piece's beginning",
    "plamo3": "its mask is one token wider than the window it keeps",
    "unlimitedocr": "a piece of one token begins the ring that it keeps of the reply",
}

# And networks of any family with such a part. What a pass pads a prompt with would count as length
# too, and so would tokens of a draft for those before them.
TWO_FACTORS = "its rotary factors are those of the length at the piece's end, short or long"

# Families that are as exact in a batch as alone, by library and module: the tests have a
# checkpoint of each. One that is not here is tried at load (`engine.batching_check`); so are
# phi3small, unlimitedocr and mlx-vlm's deepseek_v41, which the tests make by hand: the libraries'
# code knows one vocabulary, or a tower of one size.
_TEXT = """
    Klear afm7 afmoe apertus baichuan_m1 bailing_hybrid bailing_moe bailing_moe_linear cohere
    cohere2 dbrx deepseek deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v41 dots1 ernie4_5
    ernie4_5_moe exaone exaone4 exaone_moe falcon_h1 gear gemma gemma2 gemma3 gemma3_text gemma3n
    gemma4 gemma4_text glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt2 gpt_bigcode gpt_neox
    gpt_oss gptj granite granitemoe granitemoehybrid helium hunyuan hunyuan_v1_dense internlm2
    internlm3 iquestloopcoder jamba kimi_k25 kimi_k3 kimi_linear kimi_vl laguna lfm2 lfm2-vl
    lfm2_moe lille-130m llama llama4 llama4_text longcat_flash longcat_flash_ngram mamba mamba2
    mellum mimo mimo_v2_flash minicpm minicpm3 minimax minimax_m3_vl ministral3 mistral3 mistral4
    mixtral muse_glimmer nanbeige nanochat nemotron nemotron-nas nemotron_h olmo2 olmo3 olmo_hybrid
    olmoe openelm phi phi3 phimoe phixtral pixtral plamo plamo2 plamo3 prism_hadamard_qwen35 qwen
    qwen2 qwen2_moe qwen2_vl qwen3 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe
    recurrent_gemma rwkv7 seed_oss smollm3 spark2_5 stablelm starcoder2 step3p5 talkie telechat3
    youtu_llm
"""
_VISION = """
    aya_vision cohere2_moe cohere_compass deepseek_v4 deepseek_vl_v2 deepseekocr deepseekocr_2
    dots_ocr ernie4_5_moe_vl fastvlm flint gemma3 gemma3n gemma4 gemma4_unified glm4v glm4v_moe
    glm5_next glm_ocr granite4_vision granite_vision hunyuan_vl hy_v4 idefics2 idefics3 inkling
    internvl internvl_chat k2_horizon kimi_k25 kimi_k3 kimi_vl kolibri1 lfm2_vl limite llama4
    llava llava_bunny llava_next llava_onevision longcat_flash_sparse mage_vl mimo_v2 minicpmo
    minicpmv4_6 minicpmv4_7 minimax_m3 minimax_m3_vl mistral3 mistral_large3 mllama molmo molmo2
    molmo_point moondream2 moondream3 multi_modality muse_glimmer nemotron_h_nano_omni
    paddleocr_vl paligemma phi3_v phi4_siglip phi4mm pixtral qwen2_5_vl qwen2_vl qwen3_5
    qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_omni_moe qwen3_vl qwen3_vl_moe qwen4_exp
    smolvlm step3p7 xing4_0 z1t zaya1_vl
"""
_EXACT = {"mlx_lm": frozenset(_TEXT.split()), "mlx_vlm": frozenset(_VISION.split())}

# Of these, such as count the columns of a padded batch, which is not what rows are in that draft.
_BY_COLUMN = ("cohere_compass", "limite", "minimax_m3", "minimax_m3_vl")

# And of these no prompts share a pass: attention asks more of its cache than there is,
_ASKING = (
    *("afm7", "limite", "deepseek_v32", "glm_moe_dsa", "hy_v4"),
    *("minimax_m3_vl", "longcat_flash_sparse"),
)
# or recurrent layers do not ask where rows end.
_ENDLESS = (
    *("bailing_moe_linear", "inkling", "jamba", "longcat_flash_ngram", "mamba", "nemotron_h"),
    *("nemotron_h_nano_omni", "olmo_hybrid", "rwkv7", "zaya1_vl"),
)


def single_because(network: Any) -> str | None:
    """Why rows of this network cannot share a batch, or None if nothing is known against it."""
    return _FAMILIES.get(family_of(network))


def cuts_matter(network: Any) -> str | None:
    """Why this network's answers depend on how prompts are cut into chunks, if they do."""
    return _CUT.get(family_of(network)) or (TWO_FACTORS if _is_long(network) else None)


def _is_long(network: Any) -> bool:
    return any(map(has_two_factors, network.modules()))


def has_two_factors(part: Any) -> bool:
    """Whether this is mlx-vlm's LongRoPE: mlx-lm's has the long ones alone."""
    return hasattr(part, "_short_freqs")


def rotation_borders(network: Any) -> set[int]:
    """Tokens of context beyond which rotary factors are other ones."""
    parts = filter(has_two_factors, network.modules())
    return {int(part.original_max_position_embeddings) for part in parts}


def batches_exactly(network: Any) -> bool:
    """Whether this family is known to; code that a checkpoint brings never is."""
    library = type(network).__module__.partition(".")[0]
    return family_of(network) in _EXACT.get(library, ())


def never_packs(network: Any) -> bool:
    """Whether prompts of this family are known to be wrong in one pass."""
    return family_of(network) in (*_ASKING, *_ENDLESS) or cuts_matter(network) is not None


def drafts_exactly(network: Any) -> bool:
    """Whether rows of this family are known to, where their states can go back."""
    return (
        batches_exactly(network) and family_of(network) not in _BY_COLUMN and not _is_long(network)
    )


def family_of(network: Any) -> str:
    return type(network).__module__.rpartition(".")[2]
