"""Conversations and media on their way to the engine, and replies on their way back.

The front imports parts of this package, and no MLX: nothing is imported here.
"""
