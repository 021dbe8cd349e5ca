"""Every stream of the Messages API through whatever version of Anthropic's SDK is imported.

    python anthropic_streams.py URL

Replies are validated strictly: what a version's types do not allow is an error.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import anthropic

MODEL = "bushel:tiny"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OSLO: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
SUM: list[Any] = [{"role": "user", "content": "What is 3 + 4?"}]
ASKED: dict[str, dict[str, Any]] = {
    "text": {"messages": SUM},
    "tools": {"messages": OSLO, "tools": [{"name": "get_weather", "input_schema": CITY}]},
    "thoughts": {"messages": SUM, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    "a cut": {"messages": SUM, "max_tokens": 2},
    "a stop": {"messages": SUM, "stop_sequences": ["="]},
}


def asked_for(name: str) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 4096, **ASKED[name]}


def streamed(client: anthropic.Anthropic, name: str) -> None:
    create: Any = client.messages.create
    whole = create(**asked_for(name))
    events = list(create(stream=True, **asked_for(name)))
    assert events[0].type == "message_start"
    assert events[-1].type == "message_stop"
    [last] = [it for it in events if it.type == "message_delta"]
    assert last.delta.stop_reason == whole.stop_reason


def helped(client: anthropic.Anthropic, name: str) -> None:
    helper: Any = client.messages.stream
    with helper(**asked_for(name)) as stream:
        assert {event.type for event in stream} >= {"message_start", "message_stop"}
        final = stream.get_final_message()
    assert final.stop_reason
    assert final.usage.output_tokens > 0


def beta(client: anthropic.Anthropic, name: str) -> None:
    helper: Any = client.beta.messages.stream
    with helper(**asked_for(name)) as stream:
        assert stream.get_final_message().stop_reason


def counted(client: anthropic.Anthropic) -> None:
    count: Any = client.messages.count_tokens
    usage = client.messages.create(model=MODEL, messages=SUM, max_tokens=1).usage
    kept = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    assert count(model=MODEL, messages=SUM).input_tokens == usage.input_tokens + kept


def main(url: str) -> int:
    client = anthropic.Anthropic(
        base_url=url, api_key="any", timeout=120, max_retries=0, _strict_response_validation=True
    )
    cases: dict[str, Any] = {"count_tokens": lambda: counted(client)}
    for name in ASKED:
        for run in (streamed, helped, beta):
            cases[f"{run.__name__}: {name}"] = lambda run=run, name=name: run(client, name)
    failed = 0
    for name, case in cases.items():
        try:
            case()
        except Exception:
            failed += 1
            version = anthropic.__version__
            print(f"anthropic {version}: {name} failed\n{traceback.format_exc(limit=-3)}")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1]), 100))
