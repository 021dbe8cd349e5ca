"""langchain-openai and langchain-anthropic: a tool turn, the same streamed, and an object."""

from __future__ import annotations

import json
import sys
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

api, url, model, degrees, question, text = sys.argv[1:]


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


@tool
def get_weather(city: str) -> str:
    """Get the current weather in a city"""
    return json.dumps({"temperature": int(degrees)})


def made() -> Any:
    if api == "messages":
        return ChatAnthropic(model=model, base_url=url, api_key="dummy", max_tokens=200)
    return ChatOpenAI(
        model=model,
        base_url=f"{url}/v1",
        api_key="dummy",
        use_responses_api=api == "responses",
        max_tokens=200,
    )


def streamed(chain: Any, messages: list[Any]) -> Any:
    whole = None
    for chunk in chain.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


def asked(say: Any) -> dict[str, Any]:
    messages: list[Any] = [HumanMessage(question)]
    first = say(messages)
    call = first.tool_calls[0]
    result = get_weather.invoke(call["args"])
    second = say([*messages, first, ToolMessage(result, tool_call_id=call["id"])])
    return {"call": [call["name"], call["args"]], "answer": second.text}


chain = made().bind_tools([get_weather])
print(
    json.dumps(
        {
            "whole": asked(chain.invoke),
            "streamed": asked(lambda messages: streamed(chain, messages)),
            "object": made().with_structured_output(Person).invoke(text).model_dump(),
        }
    )
)
