"""Tokens that are guessed before they are computed: who guesses them, and how many pay."""
