"""How the small model in `bushel/tiny` was made; PyTorch is a tool here, never a dependency."""
