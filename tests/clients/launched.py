"""Agents as `bushel launch` starts them, in homes whose own settings lead elsewhere."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.clients.agents import AGENTS, Agent, Ground, Launch
from tests.clients.install import ARCH, place

KEY = "the-servers-key"
ELSEWHERE = "http://127.0.0.1:9"  # where nobody answers
# What a user has set up before. None of it may win, and none may change.
OWN = {
    "claude": (
        ".claude/settings.json",
        json.dumps({"model": "other", "env": {"ANTHROPIC_BASE_URL": ELSEWHERE}}),
    ),
    "codex": (
        ".codex/config.toml",
        'model = "other"\nmodel_provider = "other"\n[model_providers.other]\nname = "other"\n'
        f'base_url = "{ELSEWHERE}"\nwire_api = "responses"\n',
    ),
    "opencode": (
        ".config/opencode/opencode.json",
        json.dumps({"model": "other/other", "provider": {"other": {"options": {}}}}),
    ),
    "qwen": (
        ".qwen/settings.json",
        json.dumps({"model": {"name": "other"}, "env": {"OPENAI_BASE_URL": ELSEWHERE}}),
    ),
    "aider": (".aider.conf.yml", "model: openai/other\n"),
}


def own_settings(client: str, ground: Ground) -> Path:
    name, text = OWN[client]
    return ground.write(name, text)


def _binaries(client: str) -> Path:
    if client == "aider":
        return place(client) / "bin"
    if client == "opencode":
        return place(client) / "node_modules" / f"opencode-{sys.platform}-{ARCH}" / "bin"
    return place(client) / "node_modules" / ".bin"


def _launched(client: str, *arguments: str) -> Callable[[Ground, str], Launch]:
    def launch(ground: Ground, ask: str) -> Launch:
        command = [sys.executable, "-m", "bushel", "launch", client, "--model", ground.model]
        node = place("node") / "node_modules" / ".bin"
        folders = (_binaries(client), node, "/usr/local/bin", "/usr/bin", "/bin")
        return Launch(
            [*command, "--", *(ask if word == "ASK" else word for word in arguments)],
            {
                "PATH": os.pathsep.join(map(str, folders)),
                "BUSHEL_URL": ground.url,
                "BUSHEL_API_KEY": KEY,
                "ANTHROPIC_API_KEY": "not-for-this-server",
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            },
        )

    return launch


def _agent(name: str, client: str, *arguments: str) -> Agent:
    return Agent(client, AGENTS[name].api, _launched(client, *arguments), AGENTS[name].read)


LAUNCHED = {
    "claude": _agent("claude-code", "claude", "-p", "ASK", "--allowedTools", "Read"),
    "codex": _agent(
        *("codex", "codex", "exec", "--skip-git-repo-check"),
        *("--dangerously-bypass-approvals-and-sandbox", "ASK"),
    ),
    "opencode": _agent("opencode-chat", "opencode", "run", "ASK"),
    "qwen": _agent("qwen-chat", "qwen", "-p", "ASK", "--approval-mode", "yolo"),
}
AIDER = _agent(
    *("aider", "aider", "--no-check-update", "--no-gitignore", "--yes-always", "--no-pretty"),
    *("--edit-format", "diff", "--no-auto-commits", "--message", "ASK", "hello.txt"),
)
