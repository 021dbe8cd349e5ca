"""Two servers that were given one cache folder: one has it, both answer (B46)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .server_process import FEW, Server
from .test_cache_killed import ask
from .test_metrics import samples

pytestmark = pytest.mark.long


def test_two_servers_on_one_folder_answer_alike_and_one_keeps_it(tmp_path: Path) -> None:
    """The second says that it goes without, and still does when the first has ended; whoever
    starts next has the folder, with what the first wrote, until it is cleared. (A first that is
    killed: `test_cache_killed`.)
    """
    flags = (*FEW, "--cache-dir", str(tmp_path), "--cache-disk", "200MB")
    servers = [Server(*flags), Server(*flags)]
    try:
        off = {it.wait().status()["engine"]["cache"]["disk"]["off"]: it for it in servers}
        first, second = off[""], off["another process uses its folder"]
        assert "Disk cache is off" in second.log
        first.logged(f"up to 0.20 GB in {tmp_path}")
        with ThreadPoolExecutor() as threads:
            asked = [[threads.submit(ask, it, at) for it in servers] for at in range(6)]
        texts = [[it.result()[0] for it in pair] for pair in asked]
        assert all(one == two for one, two in texts)
        assert first.http.get("/v1/cache").json()["disk"]["files"] > 0
        assert first.stop() == 0
        assert ask(second, 0)[0] == texts[0][0]
        assert second.http.get("/v1/cache").json()["disk"]["files"] == 0
        servers.append(third := Server(*flags).wait())
        assert third.status()["engine"]["cache"]["disk"]["off"] == ""
        text, cached = ask(third, 0)
        assert (text, cached > 0) == (texts[0][0], True)
        assert third.status()["recent"][0]["hit"] == "disk"
        found = samples(third.http.get("/metrics").text)
        assert found["bushel:prefix_cache_hit_requests_total{kind=disk}"] == 1
        assert found["bushel:prefix_cache_disk_files"] > 0
        assert found["bushel:prefix_cache_disk_read_files_total"] > 0
        assert list(tmp_path.rglob("*.safetensors"))
        assert third.http.delete("/v1/cache").json()["disk"]["files"] == 0
        assert third.stop() == 0
        assert not list(tmp_path.rglob("*.safetensors"))
    finally:
        for server in servers:
            server.close()
