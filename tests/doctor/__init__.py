"""`bushel doctor`: that its report comes to its end, and that each line can go wrong."""
