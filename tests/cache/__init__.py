"""Tests of `bushel.cache`."""
