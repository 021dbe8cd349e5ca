"""From nothing to the first answer: `python3 -m benchmarks.first_answer [WAY ...]`.

In a fresh folder each, with empty caches, so that packages are downloaded:

clone   git clone, `make setup`, `make serve`
uv      git clone, `uv tool install`, `bushel serve`
wheel   an environment, `pip install WHEEL`, `bushel serve`; building the wheel is not counted

Without WAY it goes all of them. It needs Python's own library, git and make, and uv for that
way, and asks the small model that comes with Bushel.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRA = "" if platform.system() == "Darwin" else "[cpu]"
PATIENCE = 300.0
QUESTION = {"messages": [{"role": "user", "content": "What is 3 + 4?"}]}


def call(command: Sequence[str | Path], folder: Path) -> None:
    places = {"UV_CACHE_DIR": "cache", "UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin"}
    fresh = {name: str(folder / place) for name, place in places.items()}
    environment = {**os.environ, **fresh, "PIP_NO_CACHE_DIR": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit(f"{command[0]} is not installed here, and this way of installing needs it.")
    if done.returncode:
        sys.exit(f"{command[0]} failed: {done.stderr[-2000:]}")


def clone(folder: Path) -> list[str | Path]:
    """Returns the command that serves, up to the flags of `bushel serve`."""
    call(["git", "clone", "--quiet", ROOT, folder / "bushel"], folder)
    call(["make", "-C", folder / "bushel", "setup"], folder)
    return ["make", "-C", folder / "bushel", "serve"]


def uv(folder: Path) -> list[str | Path]:
    call(["git", "clone", "--quiet", ROOT, folder / "bushel"], folder)
    source = f"{folder / 'bushel'}{EXTRA}"
    call(["uv", "tool", "install", "--quiet", "--python", sys.executable, source], folder)
    return [folder / "bin" / "bushel", "serve"]


def wheel(folder: Path) -> list[str | Path]:
    [file] = folder.glob("*.whl")
    call([sys.executable, "-m", "venv", folder / "venv"], folder)
    call([folder / "venv" / "bin" / "pip", "install", f"{file}{EXTRA}"], folder)
    return [folder / "venv" / "bin" / "bushel", "serve"]


def build(folder: Path) -> None:
    source = folder / "source"
    call(["git", "clone", "--quiet", ROOT, source], folder)
    call([sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", folder, source], folder)


WAYS = {"clone": clone, "uv": uv, "wheel": wheel}


@contextlib.contextmanager
def served(command: Sequence[str | Path], folder: Path, port: int) -> Iterator[None]:
    flags = [f"ARGS=--port {port}"] if command[0] == "make" else ["--port", str(port)]
    environment = {**os.environ, "BUSHEL_RUNTIME_DIR": str(folder / "runtime")}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*command, *flags], stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def until_ready(address: str) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health"):
            return
        time.sleep(0.05)
    sys.exit("the server was not ready in time")


def answer(address: str) -> str:
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(QUESTION).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"])


def measured(way: str) -> None:
    with tempfile.TemporaryDirectory(prefix="bushel-first-") as name:
        folder = Path(name)
        if way == "wheel":
            build(folder)
        times = [time.monotonic()]
        command = WAYS[way](folder)
        times.append(time.monotonic())
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        with served(command, folder, port):
            until_ready(address)
            times.append(time.monotonic())
            text = answer(address)
            times.append(time.monotonic())
    up, ready, first = (after - before for before, after in itertools.pairwise(times))
    parts = f"set up {up:.1f} s, server ready {ready:.1f} s, first answer {first:.1f} s"
    print(f"{way}: {parts}; {times[-1] - times[0]:.1f} s in all ({text})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}")
    ways = parser.parse_args().ways or list(WAYS)
    if unknown := set(ways) - WAYS.keys():
        parser.error(f"no such way: {', '.join(unknown)}")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    print(f"{machine}, Python {platform.python_version()}", flush=True)
    for way in ways:
        measured(way)


if __name__ == "__main__":
    main()
