"""Text on the host: tokenizers and their chat templates, detokenizing, grammars. No MLX here."""
