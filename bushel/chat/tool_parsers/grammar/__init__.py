"""What tool formats share to force calls: the parts of a grammar that calls are made of."""
