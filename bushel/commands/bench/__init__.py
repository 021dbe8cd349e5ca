"""`bushel bench`: how fast a server is, for so many requests at once and prompts so long."""
