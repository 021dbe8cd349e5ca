"""What never ends is ended, and what ends in time is left alone."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from bushel.core import ModelError
from bushel.text.time_limit import time_limit


def endless() -> None:
    while True:
        try:
            for _ in iter(int, 1):
                pass
        except Exception:  # as templates and libraries do
            pass


def test_what_computes_for_ever_is_ended() -> None:
    with pytest.raises(ModelError, match="too long"), time_limit(0.1, "too long"):
        endless()


def test_what_ends_in_time_leaves_no_timer() -> None:
    """Waiting is not counted, nor does a thread that cannot be interrupted mind."""
    with time_limit(0.1, "too long"):
        time.sleep(0.3)
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    elsewhere = threading.Thread(target=lambda: time_limit(0.1, "too long").__enter__())
    elsewhere.start()
    elsewhere.join()
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
