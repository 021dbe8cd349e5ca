"""`bushel doctor`: what this machine does with Bushel, as one report to read or to send on."""
