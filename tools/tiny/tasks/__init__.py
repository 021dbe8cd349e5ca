"""What the model is taught: `talk(draw)` is one conversation of the training mix."""

from tools.tiny.tasks.mix import KINDS, agent_talk, long_talk, single, talk

__all__ = ["KINDS", "agent_talk", "long_talk", "single", "talk"]
