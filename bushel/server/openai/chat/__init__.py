"""`POST /v1/chat/completions`: a reply to a conversation."""
