"""Text on the host: tokenizers, detokenizing, grammars, vocabularies. Nothing here imports MLX."""
