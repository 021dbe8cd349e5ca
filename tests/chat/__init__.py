"""Media, templates and what clients may do with them, without any engine."""
