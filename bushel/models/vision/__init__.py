"""The vision half of models: placeholders, features of images, M-RoPE, cross-attention."""
