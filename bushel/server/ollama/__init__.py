"""Ollama's API: what is read of a body, and how a reply is written, a line of JSON at a time."""
