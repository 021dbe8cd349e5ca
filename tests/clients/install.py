"""Installs the real clients of these tests, pinned, each in a directory of its own.

    python -m tests.clients.install [NAME …]

They go below the directory that BUSHEL_TEST_CLIENTS names, else below the user's cache. What is
there already stays. Everything comes by name from npm and PyPI.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

NODE = "node@22.23.3"  # older ones lack what half of the npm clients need
ARCH = "arm64" if platform.machine() in ("arm64", "aarch64") else "x64"

NPM = {
    "node": [NODE],
    "ai": [
        "ai@7.0.169",
        "@ai-sdk/openai-compatible@3.0.90",
        "@ai-sdk/openai@4.0.114",
        "@ai-sdk/anthropic@4.0.102",
        "zod@4.6.7",
    ],
    "pi": ["@earendil-works/pi-coding-agent@0.87.1"],
    "qwen": ["@qwen-code/qwen-code@0.24.4"],
    # The launcher looks for the binary's package in places of its own; the tests call it directly.
    "opencode": ["opencode-ai@1.18.18", f"opencode-{sys.platform}-{ARCH}@1.18.18"],
    "claude": ["@anthropic-ai/claude-code@2.1.325"],
    "codex": ["@openai/codex@0.166.0"],
}
PYPI = {
    "llm": ["llm==0.36"],
    "langchain": ["langchain-openai==1.7.3", "langchain-anthropic==1.7.7"],
    "litellm": ["litellm==1.106.2", "mcp"],
    "pydantic": ["pydantic-ai-slim[openai,anthropic]==2.66.0"],
    "instructor": ["instructor==1.17.0", "anthropic"],
    "aider": ["aider-chat==0.86.2"],
}
NAMES = (*PYPI, *NPM)


def root() -> Path:
    """Where clients are, or will be."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = os.environ.get("BUSHEL_TEST_CLIENTS") or Path(cache) / "bushel" / "clients"
    return Path(folder).absolute()


def place(name: str) -> Path:
    return root() / name


def installed(name: str) -> bool:
    return (place(name) / ".installed").is_file()


def install(name: str) -> None:
    """Leaves either the whole client or nothing that `installed` takes for one."""
    where = place(name)
    if installed(name):
        return
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    if name in NPM:
        (where / "package.json").write_text("{}")  # keeps npm from looking in folders above
        command = ["npm", "install", "--no-audit", "--no-fund", *NPM[name]]
        subprocess.run(command, cwd=where, check=True)
    else:
        subprocess.run([sys.executable, "-m", "venv", where], check=True)
        python = str(where / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", *PYPI[name]], check=True)
    (where / ".installed").touch()


def main(names: list[str]) -> int:
    failed = []
    for name in names or NAMES:
        print(f"{name}: {' '.join(NPM.get(name) or PYPI[name])}", flush=True)
        try:
            install(name)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{name}: not installed: {error}", flush=True)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
