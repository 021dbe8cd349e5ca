"""Bushel's tests: a package, so that `python -m tests.parity` finds its neighbours."""
