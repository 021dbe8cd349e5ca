"""The machine as the operating system shows it: versions, memory, descriptors, disks, a port."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bushel.core import BushelError
from bushel.core.machine_memory import beside_engine, job_memory, total_memory
from bushel.core.version import VERSION
from bushel.doctor.finding import DoctorOptions, Finding, Probe, Section, size
from bushel.server.http import descriptors
from bushel.server.options import Limits, ServerOptions

_PACKAGES = ("mlx", "mlx-lm", "mlx-vlm", "transformers")
_FULL = {"hub cache": 1 << 30, "temporary files": 256 << 20}  # bytes free, below which it is
_SMALL_MEMORY = 4 << 30  # of which more than half may go to a server's other processes

_FEW_CONNECTIONS = 64
_RAISE = "Raise the limit before the start: ulimit -n 4096"


def section(options: DoctorOptions) -> Section:
    return Section(
        [
            Probe("machine", machine),
            Probe("python", python),
            Probe("versions", versions),
            Probe("memory", memory),
            Probe("descriptors", file_descriptors),
            Probe("disk", disk),
            Probe("port", port),
        ]
    )


def machine() -> Iterator[Finding]:
    name = platform.mac_ver()[0]
    system = f"macOS {name}" if name else f"{platform.system()} {platform.release()}"
    cores = f"{os.cpu_count()} cores"
    yield Finding("ok", "machine", f"{system}, {platform.machine()}, {_chip()}, {cores}")


def _chip() -> str:
    if platform.system() == "Darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        told = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        return told or "unknown chip"
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown chip")


def python() -> Iterator[Finding]:
    words = f"{platform.python_version()} for {platform.machine()}"
    if platform.system() == "Darwin" and platform.machine() != "arm64":
        advice = "MLX has no build for it: install a Python for arm64 and make the venv anew."
        yield Finding("wrong", "python", words, advice)
    else:
        yield Finding("ok", "python", words)


def versions() -> Iterator[Finding]:
    found = {name: _version(name) for name in _PACKAGES}
    told = (f"{name} {number or 'missing'}" for name, number in found.items())
    words = ", ".join([f"bushel {VERSION}", *told])
    missing = [name for name, number in found.items() if number is None]
    if missing:
        advice = f"pip install {' '.join(missing)}; in a clone, make setup."
        yield Finding("wrong", "versions", words, advice)
    else:
        yield Finding("ok", "versions", words)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def memory() -> Iterator[Finding]:
    total = total_memory()
    beside = beside_engine(ServerOptions.workers, job_memory(total))
    words = f"{size(total)}; beside the engine a server may take {size(beside)}"
    if total < _SMALL_MEMORY:
        advice = "A server with --workers 1 takes less."
        yield Finding("slow", "memory", words, advice)
    else:
        yield Finding("ok", "memory", words)


def file_descriptors() -> Iterator[Finding]:
    """The limit of this process is raised as a server's would be; it is a process of its own."""
    soft, hard = (_limit(value) for value in resource.getrlimit(resource.RLIMIT_NOFILE))
    most, workers = Limits.connections, ServerOptions.workers
    limit = descriptors.raise_limit(most, workers)
    words = f"{soft}, can be raised to {hard}"
    try:
        served = descriptors.plan(limit, most, workers).served
    except BushelError:
        yield Finding("wrong", "descriptors", words, f"Too few to serve anyone. {_RAISE}")
        return
    words += f"; a server has {limit}, for {served} connections"
    if served < _FEW_CONNECTIONS:
        yield Finding("slow", "descriptors", words, f"Others are turned away. {_RAISE}")
    else:
        yield Finding("ok", "descriptors", words)


def _limit(value: int) -> str:
    return "no limit" if value == resource.RLIM_INFINITY else str(value)


def disk(
    disk_usage: Callable[[str], Any] = shutil.disk_usage, folders: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    for name, folder in (_folders() if folders is None else folders).items():
        there = Path(folder).absolute()
        while not there.exists():
            there = there.parent
        usage = disk_usage(str(there))
        words = f"{size(usage.free)} free of {size(usage.total)} at {folder}"
        if usage.free < _FULL[name]:
            advice = f"The disk is full: at least {size(_FULL[name])} should be free there."
            yield Finding("wrong", name, words, advice)
        elif not os.access(there, os.W_OK | os.X_OK):
            advice = f"Nothing can be written to {there}: change its owner or its mode."
            yield Finding("wrong", name, words, advice)
        else:
            yield Finding("ok", name, words)


def _folders() -> dict[str, str]:
    from huggingface_hub import constants

    return {"hub cache": str(constants.HF_HUB_CACHE), "temporary files": tempfile.gettempdir()}


def port() -> Iterator[Finding]:
    usual = ServerOptions.port
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    try:
        with socket.create_server(("127.0.0.1", usual)):
            words = f"{usual} is free on 127.0.0.1"
    except OSError:
        words = f"{usual} is taken, so a server needs --port; {number} is free"
    yield Finding("ok", "port", words)
