"""The dashboard that comes with Bushel asks for metrics that a server has."""

from __future__ import annotations

import json
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.dashboard.queries import DASHBOARD, metrics, panels
from tests.server.server_process import Server


def scraped(server: Server) -> set[str]:
    body = {"prompt": "Once", "max_tokens": 2}
    server.http.post("/v1/completions", json=body).raise_for_status()
    text = server.http.get("/metrics").raise_for_status().text
    families = text_string_to_metric_families(text)
    return {sample.name for family in families for sample in family.samples}


def test_every_metric_of_the_dashboard_is_there(tiny: Server) -> None:
    """A panel that asks for another name stays empty, and nobody is told why. B53."""
    assert len(metrics()) > 30
    assert metrics() - scraped(tiny) == set()


def test_control_a_metric_that_is_not_there_is_seen(tiny: Server, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(DASHBOARD.read_text().replace("vllm:num_requests_running", "vllm:running"))
    assert metrics(wrong) - scraped(tiny) == {"vllm:running"}


def test_panels_have_places_of_their_own() -> None:
    places: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(set(ids)) == len(ids)
