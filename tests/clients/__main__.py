"""Installs the clients that are not there, and runs the tests with them.

    python -m tests.clients [ARGUMENTS OF PYTEST …]

The tests run where there is no network but the loopback, on systems that can make such a place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.clients.install import main, root

ALONE = ("unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def _alone() -> tuple[str, ...]:
    """A command that takes the network away from the one behind it, if that is possible here."""
    if not all(map(shutil.which, ("unshare", "ip"))):
        return ()
    tried = subprocess.run([*ALONE, "true"], capture_output=True)
    return ALONE if tried.returncode == 0 else ()


if __name__ == "__main__":
    main([])
    environment = {**os.environ, "BUSHEL_TEST_CLIENTS": str(root())}
    tests = [sys.executable, "-m", "pytest", "tests/clients", *sys.argv[1:]]
    sys.exit(subprocess.run([*_alone(), *tests], env=environment).returncode)
