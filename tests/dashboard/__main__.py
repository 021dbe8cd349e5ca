"""`python -m tests.dashboard`: every query of the dashboard, asked of a Prometheus that scrapes a
loaded server; exits with 1 if one has no answer. It needs Debian's package `prometheus`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.dashboard.queries import queries
from tests.server.server_process import FEW, PATIENCE, Server, free_port, serving, until

LOAD_SECONDS = 15.0  # at least: some scrapes, which rates are made from
STREAMS, EACH = 4, 6  # clients, and requests of each, at least


@contextlib.contextmanager
def prometheus(target: str) -> Iterator[httpx.Client]:
    """A client of one that looks at a server every second."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("There is no prometheus here: apt-get install prometheus")
    with tempfile.TemporaryDirectory(prefix="bushel-") as folder:
        # JSON is YAML, too.
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "bushel", "static_configs": [{"targets": [target]}]}],
        }
        file = Path(folder) / "prometheus.yml"
        file.write_text(json.dumps(config))
        address = f"127.0.0.1:{free_port()}"
        with (Path(folder) / "log").open("wb") as log:
            running = subprocess.Popen(
                [
                    program,
                    f"--config.file={file}",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address={address}",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            with httpx.Client(base_url=f"http://{address}", timeout=PATIENCE) as client:
                until(lambda: is_ready(client), "prometheus is ready")
                yield client
        finally:
            running.terminate()
            running.wait()


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def ask(server: Server, end: float) -> None:
    """One request after the other, until it is time; each prompt goes on from the one before."""
    said, asked = "Tell me a story.", 0
    while time.monotonic() < end or asked < EACH:
        asked += 1
        body = {
            "messages": [{"role": "user", "content": said[-2000:]}],
            "max_tokens": 16,
            "n": 2,
            "stream": True,
        }
        with server.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            said += " ".join(line[:20] for line in reply.iter_lines())


def answer(client: httpx.Client, query: str) -> list[Any]:
    reply = client.get("/api/v1/query", params={"query": query}).json()
    return list(reply["data"]["result"]) if reply["status"] == "success" else []


def is_number(result: Any) -> bool:
    return str(result["value"][1]) not in ("NaN", "+Inf", "-Inf")


def main() -> int:
    missing = 0
    with serving(*FEW) as server, prometheus(server.url.removeprefix("http://")) as client:
        end = time.monotonic() + LOAD_SECONDS
        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            list(pool.map(lambda _: ask(server, end), range(STREAMS)))
        for title, query in queries():
            results = answer(client, query)
            good = bool(results) and all(map(is_number, results))
            missing += not good
            value = results[0]["value"][1] if results else "nothing"
            print(f"{'ok  ' if good else 'FAIL'} {title}: {value:.12}  {query}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
