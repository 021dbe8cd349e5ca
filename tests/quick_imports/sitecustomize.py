"""Lets processes that are started with this folder on their path import transformers sooner."""

import transformers_files  # noqa: F401
