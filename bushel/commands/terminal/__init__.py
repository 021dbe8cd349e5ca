"""What a model writes, as a terminal shows it."""
