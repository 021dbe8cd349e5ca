"""OpenAI's files and batches: many requests in one file, answered when nobody else waits."""
