"""Two servers that were given one cache folder: one has it, both answer (B46)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .server_process import FEW, Server
from .test_cache_killed import ask, killed


def test_two_servers_on_one_folder_answer_alike_and_one_keeps_it(tmp_path: Path) -> None:
    """The second says that it goes without, and still does when the first is killed; whoever
    starts next has the folder, with what the first wrote.
    """
    flags = (*FEW, "--cache-dir", str(tmp_path))
    first = Server(*flags).wait()
    second = Server(*flags).wait()
    servers = [first, second]
    try:
        disks = [it.status()["engine"]["cache"]["disk"] for it in servers]
        assert [disk["off"] for disk in disks] == ["", "another process uses its folder"]
        assert "Disk cache is off" in second.log
        with ThreadPoolExecutor() as threads:
            asked = [[threads.submit(ask, it, at) for it in servers] for at in range(6)]
        texts = [[it.result()[0] for it in pair] for pair in asked]
        assert all(one == two for one, two in texts)
        assert first.http.get("/v1/cache").json()["disk"]["files"] > 0
        killed(first)
        assert ask(second, 0)[0] == texts[0][0]
        assert second.http.get("/v1/cache").json()["disk"]["files"] == 0
        servers.append(third := Server(*flags).wait())
        assert third.status()["engine"]["cache"]["disk"]["off"] == ""
        text, cached = ask(third, 0)
        assert (text, cached > 0) == (texts[0][0], True)
    finally:
        for server in servers:
            server.close()
