"""Bodies of real clients through the templates of real models.

Some of both are here, made up after real ones. The recorded ones are read from `templates` and
`clients` in the folder that BUSHEL_TEST_CORPUS names.
BUSHEL_TEST_FAMILIES=all tries every pair, and not one in several.
"""
