"""Families whose library code takes one position for all rows, mended for rows at their own.

A part of a network is given another class, which runs batches; one row alone goes through the
library's own code.
"""
