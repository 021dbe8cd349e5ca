"""Continuous batching: `engine.Engine` is the loop, `schedule` its policy.

Nothing is imported here: a server's front process needs `reply` and must not load MLX.
"""
