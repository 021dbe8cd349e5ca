"""What a reply may look like, as a grammar: answers of a shape, calls, thoughts before them.

    guide_of      a request ─> core.Guide
    schema.py     JSON schemas: what can be held to, and how much of it is taken
    lark.py       writes the grammar's text
    calls.py      which form a model's calls have; one small function for each, by family
                  (objects.py, elements.py)
    habit.py      whether a model thinks where nobody says

No MLX. Whether a grammar compiles, and fast enough, a worker tries before an engine does it.
"""

from bushel.chat.structured_output.reply_constraint import constraint_of

__all__ = ["constraint_of"]
