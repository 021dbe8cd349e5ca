"""Models of the hub on this machine, for operators: list, pull, remove and inspect over HTTP."""
