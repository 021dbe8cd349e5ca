"""The sub-commands of `bushel`, run as a user runs them."""
