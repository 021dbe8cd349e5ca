"""A stand-in for the hub: a checkpoint's files by the hub's own paths; it can be cut off."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_PART = 4 << 20
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubStandIn(ThreadingHTTPServer):
    """cut: how many bytes of a file it sends before it hangs up; None: all. cut_only: of files
    whose names end so. pause: seconds between two parts of one. gated: nobody may have it. go:
    while it is cleared, no more than the first part of a file is sent. sent: bytes by file.
    """

    daemon_threads = True

    def __init__(self, name: str, folder: Path):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.name, self.folder = name, folder
        self.cut: int | None = None
        self.cut_only = ""
        self.gated = False
        self.go = threading.Event()
        self.go.set()
        self.pause = 0.0
        self.sent: Counter[str] = Counter()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self) -> list[Path]:
        return sorted(file for file in self.folder.rglob("*") if file.is_file())


class _Handler(BaseHTTPRequestHandler):
    server: HubStandIn

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._file(with_body=False)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith(f"/api/models/{self.server.name}"):
            self._listing(path)
        else:
            self._file(with_body=True)

    def _listing(self, path: str) -> None:
        if self.server.gated:
            return self._begin(403, 0, "text/plain", {"X-Error-Code": "GatedRepo"})
        names = [str(file.relative_to(self.server.folder)) for file in self.server.files()]
        sizes = [file.stat().st_size for file in self.server.files()]
        if "/tree/" in path:
            said: object = [
                {"type": "file", "path": name, "size": size, "oid": COMMIT}
                for name, size in zip(names, sizes, strict=True)
            ]
        else:
            siblings = [
                {"rfilename": name, "size": size} for name, size in zip(names, sizes, strict=True)
            ]
            said = {"id": self.server.name, "sha": COMMIT, "siblings": siblings, "private": False}
        body = json.dumps(said).encode()
        self._begin(200, len(body), "application/json")
        self.wfile.write(body)

    def _file(self, *, with_body: bool) -> None:
        found = re.fullmatch(rf"/{self.server.name}/resolve/[^/]+/(.+)", self.path)
        file = self.server.folder / found[1] if found else None
        if file is None or not file.is_file():
            self._begin(404, 0, "text/plain", {"X-Error-Code": "RepoNotFound"})
            return
        content = file.read_bytes()
        tag = hashlib.sha256(content).hexdigest()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        more = {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if wanted:
            more["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._begin(206 if wanted else 200, len(content) - start, "application/octet-stream", more)
        if with_body:
            cut = self.server.cut if file.name.endswith(self.server.cut_only) else None
            body = content[start:][:cut]
            for at in range(0, len(body), _PART):
                with contextlib.suppress(ConnectionError):  # whoever asked has gone
                    self.wfile.write(body[at : at + _PART])
                self.server.go.wait()
                time.sleep(self.server.pause)
            self.server.sent[file.name] += len(body)

    def _begin(self, code: int, length: int, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Type", kind)
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()


@contextlib.contextmanager
def hub_stand_in(name: str, folder: Path) -> Iterator[HubStandIn]:
    with HubStandIn(name, folder) as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        try:
            yield hub
        finally:
            hub.go.set()
            hub.shutdown()
            thread.join()
