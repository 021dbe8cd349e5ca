"""Bushel beside mlx-lm and mlx-vlm: the same loads, in one process and over HTTP."""
