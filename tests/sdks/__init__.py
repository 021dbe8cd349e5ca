"""Versions of the official SDKs of about a year, each of which has to parse every stream."""
