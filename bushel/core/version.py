"""Bushel's version, and the name under which it is installed."""

# The build reads it from here; sources that run without being installed have no other.
VERSION = "0.1.0"
# What pip knows it by. The name of the import and of the command is another tool's there.
DISTRIBUTION = "bushel-mlx"
