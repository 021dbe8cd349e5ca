"""What test processes, and those that they start, do not spend their time with."""

import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings

from bushel.core.held_files import VARIABLE
from tests.depth import some

# MLX on the CPU hands every operation to a thread of its own. Woken, it takes the core from the
# thread that would have sent more at once: of 91 s of processor time 17 went to such switches.
if hasattr(os, "SCHED_BATCH"):
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

# A shell that starts tests in the background has them ignore Ctrl-C, and all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Models of tests share no memory with each other's processes, nor with whatever else runs here.
_runtime = tempfile.TemporaryDirectory(prefix="bushel-")
os.environ[VARIABLE] = _runtime.name

# Nothing of what is collected goes away again, so nobody looks for it.
gc.disable()

# How long an example takes says something of the machine, and of who else is on it.
settings.register_profile("bushel", deadline=None, max_examples=some(100))
settings.load_profile("bushel")


def pytest_collection_finish() -> None:
    """Six thousand tests and all they import stay to the end: 0.3 s for each look through them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _what_stays() -> Iterator[None]:
    """Nor does a model that is closed look through what tests before it have left."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def quick_starts() -> Iterator[None]:
    """Commands that tests start are ready as soon as servers are."""
    folder = str(Path(__file__).parent / "quick_starts")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", folder, prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True, scope="session")
def part_of_a_gpu() -> None:
    """Engines take most of a CUDA device's memory at load, and here several processes share it."""
    import mlx.core as mx

    from bushel.models.device import ON_CUDA

    if ON_CUDA:
        mx.set_memory_limit(6 << 30)


@pytest.fixture(autouse=True, scope="session")
def drafts_that_pay() -> Iterator[None]:
    """Engines of tests draft as if wide passes were cheap: nothing is measured for each of them,
    and what a test sees does not depend on what else the machine does.
    """
    from tests.quick_starts.cheap_passes import cheap

    with patch("bushel.engine.drafts.profiling.measure", cheap):
        yield
