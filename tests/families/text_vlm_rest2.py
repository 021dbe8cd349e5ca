"""Text families that only mlx-vlm has."""

from .config_fragments import EXPERTS, LATENT, LOCAL, ROUTED, family, plain
from .family import Family

VLM_ALONE: tuple[Family, ...] = (
    family(
        "flint",
        "kv window",
        EXPERTS,
        LOCAL,
        library="mlx_vlm",
        no_rope_layer_indices=[1],
        mlp_only_layers=[0],
        shared_expert_intermediate_size=32,
    ),
    plain("xing4_0", LATENT, ROUTED, library="mlx_vlm", hc_mult=2),
)
