"""What the dashboard asks, as Prometheus gets it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "bushel.json"
_METRIC = re.compile(r"\b(?:vllm|bushel):[a-z0-9_]+")
# What Grafana puts into a query.
_FILLED = {"$__rate_interval": "5m", "$model_name": ".*"}


def panels(path: Path = DASHBOARD) -> list[dict[str, Any]]:
    """Those that show something."""
    every: list[dict[str, Any]] = json.loads(path.read_text())["panels"]
    return [panel for panel in every if panel["type"] != "row"]


def queries(path: Path = DASHBOARD) -> Iterator[tuple[str, str]]:
    """Of each the panel's title, and the expression."""
    for panel in panels(path):
        for target in panel["targets"]:
            expression = target["expr"]
            for name, value in _FILLED.items():
                expression = expression.replace(name, value)
            assert "$" not in expression, expression
            yield panel["title"], expression


def metrics(path: Path = DASHBOARD) -> set[str]:
    """Names that are asked for, as a scrape has them."""
    return {name for _, query in queries(path) for name in _METRIC.findall(query)}
