"""Tool formats, a file for each or for a family of them: see `tool_format` for what one is.

    registry.py   all of them
    reading/      what they share to read calls
    grammar/      what they share to force calls

To add one: its file, its line in the registry, its replies among the tests'.
"""
