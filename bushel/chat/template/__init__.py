"""Chat templates: what each can take, found by trying, and conversations in that form."""
