"""Folders of mlx-vlm that are no chat models, and chat models that the tests have no checkpoint of.

A reason is for people; `tools.families` leaves it out as soon as there is a checkpoint.
"""

from __future__ import annotations

from tests.families.vision import NOT_MADE as OF_VISION

_NO_CHAT = {
    "makes pictures, films or sound": """
        bonsai ernie_image flux2 flux3 ideogram4 llada_image mage_flow ming_image minimax_h3
        moss_image qwen_image z_image
    """,
    "writes text by diffusion, many tokens at once": """
        diffusion_gemma llada2_moe nemotron_labs_diffusion
    """,
    "finds or cuts out things in pictures": """
        falcon_perception locateanything pp_doclayout_v3 rfdetr rt_detr_v2 sam3 sam3_1 yolo11
    """,
    "measures depth, shape or pose": """
        moge3 sam3d_body sam3d_objects sapiens2 video_depth_anything
    """,
    "makes embeddings": """
        bert colidefics3 colqwen2_5 dinov2 embedding_gemma2 gemma3_embedding lfm2_colbert
        lfm2_embedding lfm2_encoder llama_bidirec llama_nemotron_vl_embedding ministral3_embedding
        modernbert qwen3_embedding qwen3_vl_embedding siglip xlm_roberta
    """,
    "sorts texts, or marks what is in them": """
        clef d1 d1_omni decider2 gliner2_5 laya openai_privacy_filter
    """,
    "speaks": "nemotron_voicechat",
    "an encoder and a decoder, for one task": "florence2 nemotron_parse",
    "a pipeline of two models": "indic_ocr",
}
NO_CHAT: dict[str, str] = {name: what for what, names in _NO_CHAT.items() for name in names.split()}

# Why there is no checkpoint, by library and family.
NOT_MADE: dict[tuple[str, str], str] = {
    ("mlx_lm", "bitnet"): "its kernel is written for Metal alone",
    ("mlx_lm", "muse_spark"): "its kernels are written for Metal alone",
    ("mlx_lm", "olmo"): "its code needs a package that mlx-lm does not bring",
    (
        "mlx_lm",
        "phi3small",
    ): "one vocabulary is written into its code; a network made by hand is exact",
    (
        "mlx_vlm",
        "deepseek_v41",
    ): "its images are records of mlx-vlm, and no tensors; with text, a network made by hand is "
    "exact",
    ("mlx_vlm", "muse_spark"): "its kernels are written for Metal alone",
    ("mlx_vlm", "hrm_text"): "its processor wants prompts read both ways; mlx-vlm's loop does not",
    ("mlx_vlm", "got"): "its processor writes a prompt of its own, and expands no image of a chat",
    ("mlx_vlm", "llmjpvl"): "mlx-vlm has no processor for it",
    ("mlx_vlm", "unlimited_ocr"): "its tower has one size; a network made by hand is exact",
    **{("mlx_vlm", name): why for name, why in OF_VISION.items()},
}
