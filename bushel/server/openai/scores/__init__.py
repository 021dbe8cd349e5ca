"""`POST /v1/rerank` and `POST /v1/score`: how well texts go with each other."""
