"""Conversations and media on their way to the engine, and replies on their way back.

    script_request.py    a script's request, checked by name
    tool_fields.py       tools and tool_choice; response_format.py: the form of an answer
    prompt.py            a request ─> Prepared: ids, tensors, borders, constraint
    reply_constraint.py  what a reply is held to
    reuse_borders.py     where prompts to come may part from this one
    process.py           all of this in a process of its own
    media/               images and videos
    template/            conversations as the model's chat template takes them
    structured_output/   grammars
    tool_parsers/        tool formats, one file each
    reply/               text ─> deltas

The front imports parts of this package, and no MLX: nothing is imported here.
"""
