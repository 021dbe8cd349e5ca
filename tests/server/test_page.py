"""The page as HTTP serves it: to whom, with what policy, how large, and from no other host."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from uv import find_uv_bin

from bushel.server.page.routes import BUILT

from .scripted_service import Service, ask, options

ROOT = Path(__file__).parents[2]
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
FIRST_LOAD = {"/", "/page/page.js", "/page/page.css", "/page/icon.svg"}
# Names that nobody asks: of SVG itself, and in what `marked` says of its own faults.
NAMED = {"http://www.w3.org", "https://github.com"}


def keyed() -> Service:
    return Service(options=options(api_keys=("sesame",)))


def get(path: str, service: Service | None = None, **headers: str) -> httpx.Response:
    return ask(service or Service(), "GET", path, headers={**BROWSER, **headers})


def linked(html: str) -> set[str]:
    return set(re.findall(r'(?:src|href)="([^"]+)"', html))


# -- to whom ------------------------------------------------------------------------------------


def test_a_browser_gets_the_page_and_other_clients_are_told_who_is_there() -> None:
    page = get("/")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    for accept in ("*/*", "application/json"):
        reply = ask(Service(), "GET", "/", headers={"accept": accept})
        assert reply.headers["content-type"] == "application/json"
        assert "Bushel is running" in reply.json()["message"]
    assert "accept" in page.headers["vary"]


@pytest.mark.parametrize("path", sorted(FIRST_LOAD | {"/docs", "/page/licenses.md"}))
def test_the_page_needs_no_key(path: str) -> None:
    assert get(path, keyed()).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("GET", "/", "*/*"),
        ("POST", "/", "text/html"),
        ("POST", "/page/page.js", "text/html"),
        ("GET", "/v1/models", "text/html"),
        ("GET", "/openapi.json", "text/html"),
        ("GET", "/docs/", "text/html"),
        ("GET", "/v1/log", "text/html"),
        ("GET", "//page/page.js", "text/html"),
    ],
)
def test_everything_else_does(method: str, path: str, accept: str) -> None:
    assert ask(keyed(), method, path, headers={"accept": accept}).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/page/",
        "/page/index.html",
        "/page/nothing.js",
        "/page/../routes.py",
        "/page/%2e%2e/routes.py",
        "/page/..%2froutes.py",
        "/page//etc/passwd",
        "/index.html",
    ],
)
def test_nothing_but_its_files_is_served(path: str) -> None:
    assert get(path).status_code == 404


def test_a_host_that_is_not_allowed_gets_no_page() -> None:
    assert get("/", host="elsewhere.example").status_code == 403


# -- how ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FIRST_LOAD | {"/docs"}))
def test_a_browser_is_told_what_it_may_do(path: str) -> None:
    """Run what this server brought, and ask nobody else. B76."""
    headers = get(path).headers
    policy: dict[str, Any] = {
        name: sources
        for name, *sources in (
            part.split() for part in headers["content-security-policy"].split(";")
        )
    }
    assert policy["default-src"] == ["'none'"]
    for name in ("script-src", "style-src", "connect-src"):
        assert policy[name] == ["'self'"]
    assert policy["img-src"] == ["'self'", "data:", "blob:"]
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == ["'none'"]
    assert policy["require-trusted-types-for"] == ["'script'"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    html = get("/").text
    assert re.findall(r"<script[^>]*>([^<]*)</script>", html) == [""]
    assert "<style" not in html
    assert not re.search(r"\s(on\w+|style)=", html)
    assert {f"/{path}" for path in linked(html)} == FIRST_LOAD - {"/"}


def test_a_file_that_is_known_is_not_sent_again() -> None:
    for path in FIRST_LOAD:
        etag = get(path).headers["etag"]
        for known in (etag, f'"other", W/{etag}'):
            again = get(path, **{"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == etag
        assert get(path, **{"if-none-match": '"other"'}).status_code == 200


def test_what_is_compressed_is_the_same() -> None:
    for path in FIRST_LOAD:
        plain = get(path, **{"accept-encoding": "identity"})
        small = get(path, **{"accept-encoding": "gzip, br"})
        assert "content-encoding" not in plain.headers
        assert small.headers["content-encoding"] == "gzip"
        assert small.content == plain.content


def test_the_first_load_is_small() -> None:
    size = sum(
        int(get(path, **{"accept-encoding": "gzip"}).headers["content-length"])
        for path in FIRST_LOAD
    )
    assert size < 300_000


def addresses(text: str) -> set[str]:
    return {f"{scheme}//{host}" for scheme, host in re.findall(r"\b(\w+:)//([\w.-]+)", text)}


def test_no_file_names_another_host() -> None:
    """So none is ever asked. B76."""
    for path in sorted(BUILT.iterdir()):
        if path.suffix != ".md":  # licences
            assert addresses(path.read_text()) <= NAMED, path.name


def test_control_another_host_is_noticed() -> None:
    assert addresses('fetch("https://cdn.example/x.js")') == {"https://cdn.example"}


# -- where it comes from ------------------------------------------------------------------------


@pytest.mark.long
def test_a_wheel_has_the_page(tmp_path: Path) -> None:
    wanted = {f"bushel/server/page/built/{path.name}" for path in BUILT.iterdir()}
    copy = tmp_path / "source"
    shutil.copytree(ROOT / "bushel" / "server" / "page", copy / "bushel" / "server" / "page")
    for folder in ("bushel", "bushel/server"):
        (copy / folder / "__init__.py").touch()
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    command = [find_uv_bin(), "build", "--wheel", "--offline", "--out-dir", str(tmp_path)]
    made = subprocess.run([*command, str(copy)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip("setuptools is not in uv's cache")
    [wheel] = tmp_path.glob("*.whl")
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.skipif(
    shutil.which("npm") is None or not (ROOT / "page" / "node_modules").exists(),
    reason="npm or the page's libraries are not here: make page",
)
def test_the_page_is_what_its_source_makes(tmp_path: Path) -> None:
    command = ["npx", "vite", "build", "--outDir", str(tmp_path), "--logLevel", "error"]
    subprocess.run(command, cwd=ROOT / "page", check=True, capture_output=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in BUILT.iterdir()}


def test_what_is_sent_compressed_is_gzip() -> None:
    """Control: the test's own client would unpack anything it knows."""
    from bushel.server.page.routes import PageFile

    file = PageFile.read(BUILT / "page.css")
    assert gzip.decompress(file.zipped) == file.plain
