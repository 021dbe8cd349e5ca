"""`make conformance`: what Bushel relies on in its libraries, tried with their newest releases."""
