"""Tests of `bushel.text`."""
