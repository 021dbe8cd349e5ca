"""Families whose library code takes one position, mask or state for all rows, each given its own.

A part of a network is given another class, which runs batches; one row alone goes through the
library's own code. Where rows have no common shape (`cache.row_list`, which stands above models),
the part visits them one after the other.
"""
