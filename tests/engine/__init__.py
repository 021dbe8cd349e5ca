"""Tests of the engine and its parts."""
