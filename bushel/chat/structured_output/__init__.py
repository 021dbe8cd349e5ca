"""Grammars of answers that a request gives the form of, and what all grammars are made of.

    json_schema.py      JSON schemas: what can be held to, and how much of it is taken
    lark.py             writes the grammar's text
    answer_grammar.py   the form of an answer

How calls are forced stands with each tool format (`chat.tool_parsers`); `chat.reply_constraint`
puts answers, calls and thoughts together. Whether a grammar compiles, and fast enough, a worker
tries before an engine does it.
"""
