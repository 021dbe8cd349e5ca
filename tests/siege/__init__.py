"""A campaign against a running server: mixed load, hostile requests and faults, all at once.

    python -m tests.siege                           ten minutes
    python -m tests.siege --seconds 3600 --seed 7   an hour, another order of events

Every reply is compared with what the same request gets from the same server at peace, and from
`LLM`. In the end the server must serve, and nothing may be left of what happened: no descriptor,
no memory, no process.
"""
