"""Anthropic's Messages API: what is read of a body, and how a reply is written."""
