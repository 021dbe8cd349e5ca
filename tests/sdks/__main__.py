"""`python -m tests.sdks`: installs versions of the SDKs and streams everything through each.

    python -m tests.sdks                     some of each, evenly spread, the first and the newest
    python -m tests.sdks --count 30          more of them
    python -m tests.sdks openai==2.14.0      this one

They come by name from PyPI into a folder that is thrown away; what they need besides is what the
environment of the tests has.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.server.server_process import FEW, serving

HERE = Path(__file__).parent
# The first version of each that has to work.
FIRST = {"openai": (2, 14, 0), "anthropic": (0, 70, 0)}
# What older versions need besides, and newer ones do not.
OLDER_NEEDS = ("distro", "sniffio", "docstring-parser")
Version = tuple[int, ...]


def versions(name: str) -> list[Version]:
    """All that are published, from the first one that has to work, without previews."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", name],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    [line] = [line for line in listed.splitlines() if line.startswith("Available versions:")]
    found = re.findall(r"(?<![\w.])(\d+(?:\.\d+)+)(?![\w.])", line)
    numbers = {tuple(map(int, version.split("."))) for version in found}
    return sorted(number for number in numbers if number >= FIRST[name])


def spread(found: list[Version], count: int) -> list[Version]:
    """So many of them, the first and the last included."""
    if len(found) <= count:
        return found
    places = {round(at * (len(found) - 1) / (count - 1)) for at in range(count)}
    return [found[at] for at in sorted(places)]


def wanted(count: int) -> list[str]:
    return [
        f"{name}=={'.'.join(map(str, version))}"
        for name in FIRST
        for version in spread(versions(name), count)
    ]


def failures(package: str, url: str) -> int:
    """How many streams this version of an SDK does not take; it prints which."""
    with tempfile.TemporaryDirectory(prefix="bushel-sdk-") as folder:
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder]
        subprocess.run([*install, package, *OLDER_NEEDS], check=True)
        script = HERE / f"{package.partition('==')[0]}_streams.py"
        environment = {**os.environ, "PYTHONPATH": folder}
        return subprocess.run([sys.executable, str(script), url], env=environment).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sdks")
    parser.add_argument("packages", nargs="*", metavar="NAME==VERSION")
    parser.add_argument("--count", type=int, default=6, help="versions of each SDK")
    chosen = parser.parse_args()
    bad = []
    with serving(*FEW) as server:
        for package in chosen.packages or wanted(max(chosen.count, 2)):
            failed = failures(package, server.url)
            print(
                f"{package}: {f'{failed} failed' if failed else 'all streams parsed'}", flush=True
            )
            bad += [package] if failed else []
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
