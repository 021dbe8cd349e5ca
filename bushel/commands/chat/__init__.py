"""`bushel chat`: a conversation in the terminal, with a server that runs or one of its own."""
