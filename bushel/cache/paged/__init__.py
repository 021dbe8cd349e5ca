"""Keys and values in pages that rows share: who holds which, and attention to them."""
