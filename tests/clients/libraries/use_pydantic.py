"""pydantic-ai: an agent with a tool, the same streamed, and an object."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

api, url, model, degrees, question, text = sys.argv[1:]


class Person(BaseModel):
    name: str
    age: int
    city: str


def made() -> Any:
    if api == "messages":
        return AnthropicModel(model, provider=AnthropicProvider(base_url=url, api_key="dummy"))
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
    return kind(model, provider=OpenAIProvider(base_url=f"{url}/v1", api_key="dummy"))


def get_weather(city: str) -> dict[str, int]:
    """Get the current weather in a city"""
    return {"temperature": int(degrees)}


def called(messages: list[Any]) -> list[Any]:
    parts = [part for message in messages for part in message.parts]
    call = next(part for part in parts if isinstance(part, ToolCallPart))
    return [call.tool_name, call.args_as_dict()]


async def main() -> None:
    agent = Agent(made(), tools=[get_weather])
    whole = await agent.run(question)
    async with agent.run_stream(question) as streamed:
        answer = await streamed.get_output()
    person = await Agent(made(), output_type=Person).run(text)
    said = {
        "whole": {"call": called(whole.all_messages()), "answer": whole.output},
        "streamed": {"call": called(streamed.all_messages()), "answer": answer},
        "object": person.output.model_dump(),
    }
    print(json.dumps(said))


asyncio.run(main())
