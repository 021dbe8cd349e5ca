"""Requests as clients send them, to conversations, by each API's own translation."""

import base64
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from bushel.server.anthropic import conversation as anthropic
from bushel.server.openai.chat import conversation as chat
from bushel.server.openai.chat.schema import ChatRequest
from bushel.server.responses import conversation as responses
from tests import corpus
from tests.chat.custom_tools import APPLY_PATCH

HERE = Path(__file__).parent / "bodies"


def _kept(name: str) -> dict[str, Any]:
    """What a server has kept of an earlier reply."""
    said = [{"type": "output_text", "text": "What was said before."}]
    return {"type": "message", "id": name, "role": "assistant", "content": said}


_APIS: dict[str, Callable[[Any], Any]] = {
    "/v1/chat/completions": lambda body: chat.conversation_of(ChatRequest.model_validate(body)),
    "/v1/messages": anthropic.conversation_of,
    "/v1/messages/count_tokens": anthropic.conversation_of,
    "/v1/responses": lambda body: responses.conversation_of(body, find=_kept),
}


def _png() -> str:
    file = io.BytesIO()
    Image.new("RGB", (28, 28), (200, 30, 30)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


PNG = _png()


def _with_pictures(value: Any) -> Any:
    """Recorded images and grammars are filler; a real one stands in for each."""
    if isinstance(value, dict):
        if value.get("type") == "grammar" and value.get("syntax") == "lark":
            return {**value, "definition": APPLY_PATCH}
        if value.get("type") == "base64" and "data" in value:
            return {**value, "data": PNG, "media_type": "image/png"}
        return {key: _with_pictures(it) for key, it in value.items()}
    if isinstance(value, list):
        return [_with_pictures(it) for it in value]
    is_picture = isinstance(value, str) and value.startswith("data:image/")
    return f"data:image/png;base64,{PNG}" if is_picture else value


def _read(path: Path) -> tuple[str, dict[str, Any]] | None:
    said = json.loads(path.read_text())
    where, body = str(said["path"]).partition("?")[0], said.get("body")
    if said["method"] != "POST" or where not in _APIS or not isinstance(body, dict):
        return None
    return where, _with_pictures(body)


RECORDED = {path.stem: path for path in corpus.files("clients/*.json")}
OWN = {path.stem: path for path in sorted(HERE.glob("*.json"))}
NAMES = [name for name, path in {**RECORDED, **OWN}.items() if _read(path) is not None]


def recorded(name: str) -> tuple[str, dict[str, Any]]:
    """Where it was sent, and the body."""
    found = _read({**RECORDED, **OWN}[name])
    assert found is not None
    return found


@cache
def conversation(name: str) -> dict[str, Any]:
    where, body = recorded(name)
    return json.loads(json.dumps(_APIS[where](body)))  # type: ignore[no-any-return]
