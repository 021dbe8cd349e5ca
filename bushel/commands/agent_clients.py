"""The agents that `bushel launch` knows, and how each is told of a server: one table.

What is set lasts for one run: variables, flags, or a small file that only this run is pointed at.
Nobody's own configuration is written to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_KEY = "any"  # for clients that insist on one
KEY_VARIABLE = "BUSHEL_API_KEY"
# A prompt of 100,000 tokens takes minutes where a model is large. Most clients give up after
# some 300 s without a token, and ask again from the start.
_PATIENCE_MS = "3600000"
_MOST_OUTPUT = 32_000  # what Claude Code and Qwen Code ask for by themselves


@dataclass(frozen=True)
class Endpoint:
    """Whom a client asks for what. files: the folder for those of a run."""

    url: str  # without /v1
    model: str
    files: Path
    key: str | None = None
    context: int | None = None  # tokens; None: nobody knows

    @property
    def openai(self) -> str:
        return f"{self.url}/v1"

    @property
    def output(self) -> int:
        """Tokens of one reply that leave room for what led to it."""
        return min(_MOST_OUTPUT, (self.context or 4 * _MOST_OUTPUT) // 4)

    def file(self, stem: str, content: Mapping[str, Any]) -> tuple[Path, str]:
        """Named after what is in it: two runs never want the same file to be different."""
        text = json.dumps(content, indent=1)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return self.files / f"{stem}-{digest}.json", text


@dataclass(frozen=True)
class ClientSettings:
    """key_variable: gets the key; unset: variables that would lead elsewhere."""

    environment: dict[str, str]
    key_variable: str | None = None
    arguments: tuple[str, ...] = ()
    files: dict[Path, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class AgentClient:
    title: str
    program: str
    install: str
    prompt: int  # tokens that it sends before anyone has said a word, about
    settings: Callable[[Endpoint], ClientSettings]


def _known(**variables: object) -> dict[str, str]:
    return {name: str(value) for name, value in variables.items() if value is not None}


def _claude(to: Endpoint) -> ClientSettings:
    """A token and not an API key, which it would ask about and remember the answer. Variables that
    stand in a user's own settings win over the environment, but not over a file of settings.
    """
    kinds = ("OPUS", "SONNET", "HAIKU", "FABLE")
    variables = _known(
        ANTHROPIC_BASE_URL=to.url,
        ANTHROPIC_MODEL=to.model,
        **{f"ANTHROPIC_DEFAULT_{kind}_MODEL": to.model for kind in kinds},
        ANTHROPIC_SMALL_FAST_MODEL=to.model,
        CLAUDE_CODE_SUBAGENT_MODEL=to.model,
        CLAUDE_CODE_MAX_CONTEXT_TOKENS=to.context,
        CLAUDE_CODE_MAX_OUTPUT_TOKENS=to.output,
        CLAUDE_STREAM_IDLE_TIMEOUT_MS=_PATIENCE_MS,
        API_TIMEOUT_MS=_PATIENCE_MS,
        CLAUDE_CODE_ATTRIBUTION_HEADER="0",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    path, text = to.file("claude", {"env": variables})
    return ClientSettings(
        variables,
        key_variable="ANTHROPIC_AUTH_TOKEN",
        arguments=("--settings", str(path)),
        files={path: text},
        unset=(
            "ANTHROPIC_API_KEY",
            *(f"CLAUDE_CODE_USE_{cloud}" for cloud in ("BEDROCK", "VERTEX", "FOUNDRY")),
        ),
    )


def _codex(to: Endpoint) -> ClientSettings:
    provider = "model_providers.bushel"
    values = {
        "model": to.model,
        "review_model": to.model,
        "model_provider": "bushel",
        "model_context_window": to.context,
        f"{provider}.name": "Bushel",
        f"{provider}.base_url": to.openai,
        f"{provider}.wire_api": "responses",
        f"{provider}.stream_idle_timeout_ms": int(_PATIENCE_MS),
        f"{provider}.env_key": KEY_VARIABLE if to.key else None,
        "analytics.enabled": False,
    }
    # Its values are TOML, of which JSON's strings and numbers are a part.
    pairs = (f"{name}={json.dumps(value)}" for name, value in values.items() if value is not None)
    return ClientSettings(
        {},
        key_variable=KEY_VARIABLE if to.key else None,
        arguments=tuple(word for pair in pairs for word in ("-c", pair)),
    )


def _opencode(to: Endpoint) -> ClientSettings:
    model: dict[str, Any] = {"name": to.model, "tool_call": True}
    if to.context:
        model["limit"] = {"context": to.context, "output": min(8192, to.output)}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Bushel",
        "options": {
            "baseURL": to.openai,
            "apiKey": f"{{env:{KEY_VARIABLE}}}" if to.key else NO_KEY,
            "timeout": int(_PATIENCE_MS),
        },
        "models": {to.model: model},
    }
    named = f"bushel/{to.model}"
    config = {"provider": {"bushel": provider}, "model": named, "small_model": named}
    return ClientSettings(
        {"OPENCODE_CONFIG_CONTENT": json.dumps(config)},
        key_variable=KEY_VARIABLE if to.key else None,
    )


def _qwen(to: Endpoint) -> ClientSettings:
    generation = {"contextWindowSize": to.context} if to.context else {}
    defaults = {
        "model": {"generationConfig": generation},
        "privacy": {"usageStatisticsEnabled": False},
    }
    path, text = to.file("qwen", defaults)
    return ClientSettings(
        {
            "OPENAI_BASE_URL": to.openai,
            "OPENAI_MODEL": to.model,
            "QWEN_CODE_MAX_OUTPUT_TOKENS": str(to.output),
            "QWEN_CODE_SYSTEM_DEFAULTS_PATH": str(path),
            "QWEN_STREAM_IDLE_TIMEOUT_MS": _PATIENCE_MS,
        },
        key_variable="OPENAI_API_KEY",
        arguments=("--auth-type", "openai", "--model", to.model),
        files={path: text},
    )


def _aider(to: Endpoint) -> ClientSettings:
    named = f"openai/{to.model}"
    flags = ["--model", named, "--weak-model", named, "--editor-model", named]
    files = {}
    if to.context:
        costs = {"input_cost_per_token": 0, "output_cost_per_token": 0}
        sizes = {"max_input_tokens": to.context, "max_output_tokens": to.output}
        known = {"litellm_provider": "openai", "mode": "chat", **sizes, **costs}
        path, text = to.file("aider", {named: known})
        files[path] = text
        flags += ["--model-metadata-file", str(path)]
    return ClientSettings(
        {"OPENAI_API_BASE": to.openai, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        key_variable="OPENAI_API_KEY",
        # For this run; --analytics-disable would be for ever.
        arguments=(*flags, "--no-show-model-warnings", "--no-analytics"),
        files=files,
    )


# Prompts are as long as first requests were, at four letters to a token.
AGENT_CLIENTS = {
    "claude": AgentClient(
        "Claude Code", "claude", "npm install -g @anthropic-ai/claude-code", 20_000, _claude
    ),
    "codex": AgentClient("Codex", "codex", "npm install -g @openai/codex", 10_000, _codex),
    "opencode": AgentClient("opencode", "opencode", "npm install -g opencode-ai", 8_000, _opencode),
    "qwen": AgentClient("Qwen Code", "qwen", "npm install -g @qwen-code/qwen-code", 20_000, _qwen),
    "aider": AgentClient("aider", "aider", "pipx install aider-chat", 3_000, _aider),
}
