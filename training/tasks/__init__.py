"""What the model is taught: `talk(draw)` is one conversation of the training mix."""

from training.tasks.mix import KINDS, long_talk, single, talk

__all__ = ["KINDS", "long_talk", "single", "talk"]
