"""Keys and values in which every row of a batch has its own length, and can go back."""
