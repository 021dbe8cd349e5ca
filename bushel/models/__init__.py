"""Loaded checkpoints behind one interface (`model.Model`), over mlx-lm and mlx-vlm."""

from bushel.models.load import load
from bushel.models.model import Model, Prompt, State
from bushel.models.preparer import Preparer

__all__ = ["Model", "Preparer", "Prompt", "State", "load"]
