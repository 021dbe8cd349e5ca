"""`POST /v1/embeddings`: a vector for each text."""
