"""Between the APIs and the processes: jobs go in, what the engine says comes out."""
