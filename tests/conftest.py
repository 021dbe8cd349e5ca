"""What test processes, and those that they start, do not spend their time with."""

import contextlib
import gc
import os

# MLX on the CPU hands every operation to a thread of its own. Woken, it takes the core from the
# thread that would have sent more at once: of 91 s of processor time 17 went to such switches.
if hasattr(os, "SCHED_BATCH"):
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def pytest_collection_finish() -> None:
    """Six thousand tests and all they import stay to the end: 0.3 s for each look through them."""
    gc.collect()
    gc.freeze()
