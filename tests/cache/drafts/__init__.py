"""Tests of `bushel.cache.drafts`: rows that take drafts, against rows that step by themselves."""
