"""instructor: an object in each of its ways to ask for one, and one that grows as it is made."""

from __future__ import annotations

import json
import sys
from typing import Any

import instructor
from anthropic import Anthropic
from openai import OpenAI
from pydantic import BaseModel

api, url, model, _, _, text = sys.argv[1:]


class Person(BaseModel):
    name: str
    age: int
    city: str


def clients() -> dict[str, Any]:
    mode = instructor.Mode
    if api == "messages":
        client = Anthropic(base_url=url, api_key="dummy")
        return {"tools": instructor.from_anthropic(client, mode=mode.ANTHROPIC_TOOLS)}
    ways = {"tools": mode.TOOLS, "json": mode.JSON, "schema": mode.JSON_SCHEMA}
    return {
        name: instructor.from_openai(OpenAI(base_url=f"{url}/v1", api_key="dummy"), mode=way)
        for name, way in ways.items()
    }


ASK = {
    "model": model,
    "response_model": Person,
    "max_retries": 0,
    "max_tokens": 200,
    "messages": [{"role": "user", "content": text}],
}
said: dict[str, Any] = {}
for name, client in clients().items():
    said[name] = client.chat.completions.create(**ASK).model_dump()
    for part in client.chat.completions.create_partial(**ASK):
        said[f"{name} in parts"] = part.model_dump()
print(json.dumps(said))
