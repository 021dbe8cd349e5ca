"""Families whose attention chooses by index keys what it looks at: blocks, or single tokens.

The first of 24 tokens all fit; prompts and replies of the tests are on both sides of that, and of
the ends of blocks.
"""

from .config_fragments import LATENT, ROUTED, TWO, Config, family, wrapped
from .family import Family

SPARSE_EXPERTS: Config = {
    "intermediate_size": 32,
    "dense_intermediate_size": 128,
    "shared_intermediate_size": 32,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
# As published: dense layers come first.
MINIMAX: Config = {
    **SPARSE_EXPERTS,
    "moe_layer_freq": [0, 0, 1, 1],
    "sparse_attention_config": {
        "use_sparse_attention": True,
        "sparse_index_dim": 16,
        "sparse_num_index_heads": 2,
        "sparse_topk_blocks": 3,
        "sparse_block_size": 8,
        "sparse_disable_index_value": [0, 0, 1, 1],
        "sparse_score_type": "max",
        "sparse_init_block": 0,
        "sparse_local_block": 1,
        "sparse_attention_freq": [0, 0, 1, 1],
    },
}

SPARSE: tuple[Family, ...] = (
    # Many heads: where all of few say nothing of two tokens, either may be taken.
    family(
        "hy_v4",
        "composite",
        LATENT,
        ROUTED,
        library="mlx_vlm",
        num_key_value_heads=1,
        n_group=1,
        indexer_types=["full", "full", "shared", "full"],
        index_head_dim=16,
        index_n_heads=8,
        index_topk=24,
        hc_mult=2,
    ),
    family("minimax_m3", "kv composite", MINIMAX, library="mlx_vlm", seed=1),
    wrapped(
        "minimax_m3_vl-text",
        "composite",
        TWO,
        SPARSE_EXPERTS,
        moe_layer_freq=[0, 1],
        index_n_heads=2,
        index_head_dim=16,
        index_block_size=8,
        index_topk_blocks=3,
    ),
)
