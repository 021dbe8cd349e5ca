"""OpenAI's chat and completions APIs: what is read of a body, and how a reply is written."""
