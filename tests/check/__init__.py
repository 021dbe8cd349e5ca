"""The self-check: the command that users run, and its quick form at load."""
