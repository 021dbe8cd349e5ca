"""Text families that only mlx-vlm has."""

from .config_fragments import EXPERTS, LATENT, LOCAL, ROUTED, TIED, family, plain
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
    plain(
        "limite",
        TIED,
        library="mlx_vlm",
        seed=3,
        ve_dim=16,
        ve_layers=[0, 1],
        attn_gate_channels=16,
        xsa_layers=[0, 1],
        global_layers=[1],
        sliding_window=16,
        rope_n_pairs=4,
        mudd_inter=8,
        mudd_layers=[0, 1],
        mudd_tap_idx={"0": [0], "1": [0, 1]},
        softcap_logits={"kind": "sigmoid", "a": 30.0, "b": 0.0, "c": 8.0},
    ),
    plain("xing4_0", LATENT, ROUTED, library="mlx_vlm", hc_mult=2),
)
