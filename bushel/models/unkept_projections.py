"""What stands where glm5_next keeps the keys and values of every head for a prompt's next chunk."""

from __future__ import annotations


class UnkeptProjections:
    """Never holds any: the model makes them of its latents, as it does in long contexts.

    They take 64 times the memory of the latents (64 heads of 256 twice, and 512), a reply does not
    use them, and the library itself keeps none of a prompt of more than 32,768 tokens.
    """

    state = ()

    def size(self) -> int:
        """Of no prompt: what is held fits one only if it is as long."""
        return -1
