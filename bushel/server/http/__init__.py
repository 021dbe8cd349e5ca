"""Connections and what goes over them: limits, bodies, JSON, event streams."""
