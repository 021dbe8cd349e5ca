"""How much room one row's keys have, which on CUDA decides who computes its attention.

MLX hands one query to cuDNN where the keys lie in a buffer of a multiple of 256 tokens, and to a
kernel of its own anywhere else. A step of an 8B model, one row, H200, bfloat16, in ms:

    tokens     300   2,000   8,000   32,000   100,000
    cuDNN     5.67    5.23    5.92     6.51      8.21
    MLX       5.10    5.23    6.55    12.30     24.89

Left to itself a row has room for any number, by where its prompt was cut: after a prefix hit a
long one would nearly always have the slow way, and not the one that it has without the hit.
"""

from __future__ import annotations

from bushel.core.footprint import STEP

# Tokens from which cuDNN is worth its calls: about 2,000 for an 8B model, 16,000 for a 1B.
LONG = 4096


def padded_length(position: int) -> int:
    """Of a row that has run so many tokens; at least one place is free."""
    whole = (position // STEP + 1) * STEP
    if position >= LONG:
        return whole
    return whole - 1 if position < whole - 1 else whole + STEP - 1


def fits_until(position: int) -> int:
    """Where a row with that room needs another."""
    room = padded_length(position)
    return min(room, LONG) if position < LONG else room
