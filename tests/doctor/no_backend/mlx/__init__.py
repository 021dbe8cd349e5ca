"""MLX as it is on Linux when no backend was chosen."""
