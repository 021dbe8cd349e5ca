"""Choosing the tokens of a batch: settings, penalties, MLX's own operations or one kernel."""
