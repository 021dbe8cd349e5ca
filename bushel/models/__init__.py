"""Loaded checkpoints behind one interface (`adapter.Model`), over mlx-lm and mlx-vlm."""

from bushel.models.adapter import Model, Prompt, State
from bushel.models.load import load

__all__ = ["Model", "Prompt", "State", "load"]
