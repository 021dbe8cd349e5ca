"""Conversations and media on their way to the engine."""

from bushel.chat.prompt import prepare

__all__ = ["prepare"]
