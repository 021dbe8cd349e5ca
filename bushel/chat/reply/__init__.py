"""From a reply's text to what it says: text, thoughts and calls. No MLX.

text ─> Reader ─> core.Delta
        marker_sets.py        which markers it looks for, and where
        thinking_formats.py   where thoughts begin and end
        draft_call.py         calls inside thoughts
        pick_format.py        which formats a model uses

How calls are read stands with each tool format (`chat.tool_parsers`).
"""
