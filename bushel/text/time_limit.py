"""An end to what a checkpoint brings and may not end by itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from bushel.core import ModelError

_AGAIN = 0.1  # seconds; a handler may swallow it once


class _OutOfTime(BaseException):
    """Not an Exception: templates and libraries catch those."""


@contextlib.contextmanager
def time_limit(seconds: float, message: str) -> Iterator[None]:
    """ModelError if what is inside computes for longer.

    Counted is the processor's time, so that a busy machine makes no difference. Python lets only
    the main thread be interrupted; in others there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_: int, __: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGVTALRM, end)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN)
        yield
    except _OutOfTime:
        raise ModelError(message) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
