"""Several models in one server: who is in memory, who comes next, and what the machine has left."""
