"""From a reply's text to what it says: text, thoughts and calls. No MLX.

text ─> Reader ─> core.Delta
        sights.py     which markers it looks for, where (watch.py finds them)
        thinking.py   where thoughts begin and end; draft.py: calls inside them
        format.py     what a tool format is
        formats/      one file for each
        values.py     arguments as JSON
        pick.py       which of them a model uses
"""
