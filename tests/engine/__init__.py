"""Tests of the engine's parts that need no model."""
