"""Random workloads, of which every request is compared with itself alone.

ask        one request: a prompt, which may go on from an earlier ask's, and how to decode it
act        submit, step, abort, drain, restart or clear
workload   an engine's settings, asks and acts: all that follows from a family and a seed
alone      what an ask's answer is when an engine without a prefix cache serves nothing else
play       to carry a workload out, on `bushel.LLM` or on a real `bushel serve`

`python -m tests.fuzz --help` says how to run it. A workload that gives another answer is made as
small as it goes and printed as one command.
"""
