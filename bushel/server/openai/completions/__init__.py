"""`POST /v1/completions`: text after text, for many prompts at once if need be."""
