"""The front process: HTTP, access, limits, and the children that do the work. No MLX here."""
