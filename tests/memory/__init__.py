"""Promises of memory: what is predicted, who waits for it, and that it is given back."""
