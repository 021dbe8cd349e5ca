"""How each agent is pointed at a server, asked one thing, and left to finish by itself.

They run in a clean environment, in a project and a home of their own, with dummy keys.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clients.install import ARCH, place

LIMIT = 180  # seconds for one run
KEY = "dummy"


@dataclass(frozen=True)
class Ground:
    """Where a client runs, and whom it asks."""

    home: Path
    project: Path
    url: str  # of the server, without /v1
    model: str

    @property
    def openai(self) -> str:
        return f"{self.url}/v1"

    def write(self, name: str, content: str | Mapping[str, Any]) -> Path:
        """A file below the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return path


@dataclass(frozen=True)
class Launch:
    command: list[str | Path]
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Agent:
    """`read` is the call with which a model reads a file by this agent's tools."""

    client: str  # as `install` names it
    api: str  # that its requests are logged under
    launch: Callable[[Ground, str], Launch]
    read: Callable[[Path], tuple[str, dict[str, Any]]] | None = None
    name: str = ""  # of a model that it knows, and speaks to in another way
    refused: tuple[tuple[str, str, int], ...] = ()  # requests that it expects to fail


def run(launch: Launch, ground: Ground) -> subprocess.CompletedProcess[str]:
    node = place("node") / "node_modules" / ".bin"
    env = {
        "PATH": os.pathsep.join((str(node), "/usr/local/bin", "/usr/bin", "/bin")),
        "HOME": str(ground.home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        **launch.env,
    }
    return subprocess.run(
        list(map(str, launch.command)),
        cwd=ground.project,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def _bin(client: str, name: str) -> Path:
    return place(client) / "node_modules" / ".bin" / name


# -- each of them --------------------------------------------------------------------------


def _claude(ground: Ground, ask: str) -> Launch:
    return Launch(
        [
            *(_bin("claude", "claude"), "-p", ask, "--model", ground.model),
            *("--allowedTools", "Read", "--output-format", "json"),
        ],
        {
            "ANTHROPIC_BASE_URL": ground.url,
            "ANTHROPIC_API_KEY": "sk-ant-dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )


def _codex(ground: Ground, ask: str) -> Launch:
    ground.write(
        ".codex/config.toml",
        f'model = "{ground.model}"\n'
        'model_provider = "local"\n'
        "[model_providers.local]\n"
        'name = "local"\n'
        f'base_url = "{ground.openai}"\n'
        'env_key = "LOCAL_API_KEY"\n'
        'wire_api = "responses"\n',
    )
    return Launch(
        [
            *(_bin("codex", "codex"), "exec", "--skip-git-repo-check"),
            *("--dangerously-bypass-approvals-and-sandbox", ask),
        ],
        {"LOCAL_API_KEY": KEY},
    )


def _codex_as_openai(ground: Ground, ask: str) -> Launch:
    """With its own provider, which tries a WebSocket first."""
    return Launch(
        [
            *(_bin("codex", "codex"), "exec", "--skip-git-repo-check", "-m", ground.model),
            *("-c", "model_provider=openai", "-c", f'openai_base_url="{ground.openai}"'),
            *("--dangerously-bypass-approvals-and-sandbox", ask),
        ],
        {"OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY},
    )


def _opencode(package: str) -> Callable[[Ground, str], Launch]:
    def launch(ground: Ground, ask: str) -> Launch:
        limit = {"context": 131072, "output": 8192}
        provider = {
            "npm": package,
            "name": "local",
            "options": {"baseURL": ground.openai, "apiKey": KEY},
            "models": {ground.model: {"name": "local", "tool_call": True, "limit": limit}},
        }
        ground.write(
            ".config/opencode/opencode.json",
            {
                "autoupdate": False,
                "share": "disabled",
                "permission": {"*": "allow"},
                "provider": {"local": provider},
            },
        )
        folder = place("opencode") / "node_modules" / f"opencode-{sys.platform}-{ARCH}"
        return Launch(
            [folder / "bin" / "opencode", "run", "-m", f"local/{ground.model}", ask],
            {
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            },
        )

    return launch


def _qwen(kind: str) -> Callable[[Ground, str], Launch]:
    def launch(ground: Ground, ask: str) -> Launch:
        prefix = kind.upper()
        return Launch(
            [_bin("qwen", "qwen"), "--auth-type", kind, "-p", ask, "--approval-mode", "yolo"],
            {
                f"{prefix}_BASE_URL": ground.openai if kind == "openai" else ground.url,
                f"{prefix}_API_KEY": KEY,
                f"{prefix}_MODEL": ground.model,
            },
        )

    return launch


def _pi(api: str) -> Callable[[Ground, str], Launch]:
    def launch(ground: Ground, ask: str) -> Launch:
        model = {
            "id": ground.model,
            "name": "local",
            "reasoning": False,
            "input": ["text"],
            "contextWindow": 65536,
            "maxTokens": 1024,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        }
        base = ground.url if api == "anthropic-messages" else ground.openai
        provider = {"baseUrl": base, "api": api, "apiKey": KEY, "models": [model]}
        ground.write(".pi/agent/models.json", {"providers": {"local": provider}})
        return Launch(
            [_bin("pi", "pi"), "-p", "--provider", "local", "--model", ground.model, ask],
            {"PI_OFFLINE": "1"},
        )

    return launch


def _llm(ground: Ground, ask: str) -> Launch:
    entry = {
        "model_id": "local",
        "model_name": ground.model,
        "api_base": ground.openai,
        "api_key_name": "local",
        "supports_tools": True,
        "supports_schema": True,
        "can_stream": True,
    }
    ground.write(".config/io.datasette.llm/extra-openai-models.yaml", json.dumps([entry]))
    functions = ground.write(
        "functions.py",
        'def read_file(path: str) -> str:\n    "Read a file."\n    return open(path).read()\n',
    )
    llm = place("llm") / "bin" / "llm"
    return Launch([llm, "-m", "local", "--key", KEY, "--functions", functions, ask])


def _aider(ground: Ground, ask: str) -> Launch:
    """Its tools are edits and a command that checks them."""
    return Launch(
        [
            *(place("aider") / "bin" / "aider", "--model", f"openai/{ground.model}"),
            *("--no-show-model-warnings", "--no-check-update", "--analytics-disable"),
            *("--no-gitignore", "--yes-always", "--no-pretty", "--edit-format", "diff"),
            *("--no-auto-commits", "--auto-test", "--test-cmd", "sh check.sh"),
            *("--message", ask, "hello.txt"),
        ],
        {
            "OPENAI_API_BASE": ground.openai,
            "OPENAI_API_KEY": KEY,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )


def _path_of(key: str, tool: str) -> Callable[[Path], tuple[str, dict[str, Any]]]:
    return lambda path: (tool, {key: str(path)})


def _cat(path: Path) -> tuple[str, dict[str, Any]]:
    return "exec_command", {"cmd": f"cat {path.name}"}


_opencode_read = _path_of("filePath", "read")
_qwen_read = _path_of("file_path", "read_file")
_pi_read = _path_of("path", "read")

AGENTS = {
    "claude-code": Agent("claude", "messages", _claude, _path_of("file_path", "Read")),
    # Reminders in user turns instead of system messages, and a thinking budget.
    "claude-code-sonnet": Agent(
        "claude", "messages", _claude, _path_of("file_path", "Read"), name="claude-sonnet-4-5"
    ),
    "codex": Agent("codex", "responses", _codex, _cat),
    "codex-openai": Agent(
        *("codex", "responses", _codex_as_openai, _cat),
        name="gpt-5",
        refused=(("GET", "/v1/responses", 426),),
    ),
    "opencode-chat": Agent(
        "opencode", "chat", _opencode("@ai-sdk/openai-compatible"), _opencode_read
    ),
    "opencode-messages": Agent(
        "opencode", "messages", _opencode("@ai-sdk/anthropic"), _opencode_read
    ),
    "opencode-responses": Agent(
        "opencode", "responses", _opencode("@ai-sdk/openai"), _opencode_read
    ),
    "qwen-chat": Agent("qwen", "chat", _qwen("openai"), _qwen_read),
    "qwen-messages": Agent("qwen", "messages", _qwen("anthropic"), _qwen_read),
    "pi-chat": Agent("pi", "chat", _pi("openai-completions"), _pi_read),
    "pi-messages": Agent("pi", "messages", _pi("anthropic-messages"), _pi_read),
    "pi-responses": Agent("pi", "responses", _pi("openai-responses"), _pi_read),
    "llm": Agent("llm", "chat", _llm, _path_of("path", "read_file")),
    "aider": Agent("aider", "chat", _aider),
}
