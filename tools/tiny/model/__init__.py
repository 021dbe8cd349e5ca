"""Qwen3.5 as mlx-vlm defines it, in PyTorch; parameters are named as in its checkpoints."""
