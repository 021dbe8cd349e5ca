"""Families whose library code puts images where they do not belong, mended from outside.

The network is given another class, which makes of an image what the model was taught with.
"""
