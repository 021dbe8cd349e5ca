"""The child processes: one engine, a few that prepare requests, and how each is replaced."""
