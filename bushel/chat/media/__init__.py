"""Images and videos that clients send: where they come from, and how they are decoded."""
