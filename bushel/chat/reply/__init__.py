"""From a reply's text to what it says: text, thoughts and calls. No MLX.

text ─> Reader ─> core.Delta
        thinking.py   where thoughts begin and end
        format.py     what a tool format is; one file for each
        pick.py       which of them a model uses
"""
