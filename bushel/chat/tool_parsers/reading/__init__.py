"""What tool formats share to read calls: sections, and the forms of calls inside them."""
