"""llama.cpp's own API: `/completion` and `/props`."""
