"""Tool formats, a file for each or for a family of them: see `tool_format` for what one is.

    registry.py   all of them, found in the files of this folder
    reading/      what they share to read calls
    grammar/      what they share to force calls

To add one: its file here, and sample replies in the tests.
"""
