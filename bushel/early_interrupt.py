"""Ctrl-C while the `bushel` command is being imported: it ends the process, and prints nothing.

Python would show where it was. This is imported before anything that takes time, and does nothing
where Bushel is a library of somebody else's program.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def is_command() -> bool:
    """Whether this process was started as `bushel` or `python -m bushel`."""
    if sys.argv and sys.argv[0] == "-m":
        return "bushel" in sys.orig_argv[1:]
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "bushel"


def end_by_interrupts() -> None:
    """As the system does it, until a command wants to hear of them."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if is_command():
    end_by_interrupts()
