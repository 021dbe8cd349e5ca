"""Keys and values of a batch in pages: which row holds which, and attention to them."""
