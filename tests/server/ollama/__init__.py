"""Ollama's API over a scripted service."""
