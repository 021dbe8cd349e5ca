"""Batched output against solo output: every family, every way rows meet and part.

subject     a family's prompts, and what the library's own loop makes of each alone
run         an engine that serves some of them, watched from outside
scenario    one way of putting them together
mutation    production code made wrong on purpose, which a scenario has to notice
"""
