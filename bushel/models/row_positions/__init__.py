"""Families whose library code takes one position or mask for all rows, mended for each its own.

A part of a network is given another class, which runs batches; one row alone goes through the
library's own code.
"""
