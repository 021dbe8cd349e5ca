"""Conversations and media on their way to the engine."""

from bushel.chat.prompt import prepare, salt_of

__all__ = ["prepare", "salt_of"]
