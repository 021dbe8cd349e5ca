"""data: URLs as clients write them, and local files only from where they may come."""

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel.chat.media.media_source import UnusableMedia, from_data, from_file

MOST = 10_000
BYTES = bytes(range(256)) * 3 + b"\xfb\xff"  # its base64 has + and /


def wrapped(data: bytes) -> str:
    return base64.encodebytes(data).decode()


PLAIN = base64.b64encode(BYTES).decode()
FORMS = {
    "plain": f"data:image/png;base64,{PLAIN}",
    "without a type": f"data:;base64,{PLAIN}",
    "with parameters": f"data:image/png;charset=utf-8;name=a.png;base64,{PLAIN}",
    "in capitals": f"DATA:IMAGE/PNG;BASE64,{PLAIN}",
    "with spaces around": f"data:image/png; base64 , {PLAIN}\n",
    "in lines": f"data:image/png;base64,{wrapped(BYTES)}",
    "in lines of Windows": "data:image/png;base64," + wrapped(BYTES).replace("\n", "\r\n"),
    "percent-encoded": "data:image/png;base64,"
    + PLAIN.replace("+", "%2B").replace("/", "%2f").replace("=", "%3D"),
    "URL-safe": "data:image/png;base64," + base64.urlsafe_b64encode(BYTES).decode(),
    "URL-safe, bare": "data:image/png;base64,"
    + base64.urlsafe_b64encode(BYTES).decode().strip("="),
    "not base64": "data:image/png," + "".join(f"%{byte:02x}" for byte in BYTES),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_data_url_is_read_as_clients_write_it(form: str) -> None:
    assert from_data(FORMS[form], MOST) == BYTES


@pytest.mark.parametrize(
    "url",
    ["data:", "data:image/png;base64", "data:image/png;base64,@@@@", "data:image/png;base64,AAAAA",
     "data:image/png;base64,AAAA=AAA", "data:image/png;base64,é", "data:image/png;base64,\ud800"],
)  # fmt: skip
def test_a_broken_data_url_is_refused(url: str) -> None:
    with pytest.raises(UnusableMedia):
        from_data(url, MOST)


@given(st.binary(max_size=200_000), st.booleans())
def test_every_byte_survives(data: bytes, escaped: bool) -> None:
    """However long: escapes are taken apart piece by piece."""
    body = base64.b64encode(data).decode()
    body = "".join(f"%{ord(it):02x}" for it in body) if escaped else body
    assert from_data(f"data:;base64,{body}", 1 << 20) == data


@pytest.mark.parametrize("around", range(-3, 4))
def test_an_escape_at_the_edge_of_a_piece_is_whole(around: int) -> None:
    body = "a" * (65536 + around) + "%41%42" * 5
    assert from_data(f"data:,{body}", 1 << 20) == b"a" * (65536 + around) + b"AB" * 5


def test_the_limit_is_of_the_bytes_and_is_known_before_they_are_decoded() -> None:
    for packed in (True, False):
        for size, fits in ((MOST, True), (MOST + 1, False), (50 * MOST, False)):
            body = base64.b64encode(b"a" * size).decode() if packed else "a" * size
            url = f"data:{';base64' if packed else ''},{body}"
            if fits:
                assert len(from_data(url, MOST)) == size
            else:
                with pytest.raises(UnusableMedia, match="larger"):
                    from_data(url, MOST)
    with pytest.raises(UnusableMedia, match="larger"):  # nobody looks whether it could be decoded
        from_data("data:;base64," + "@" * 5 * MOST, MOST)
    with pytest.raises(UnusableMedia, match="larger"):  # nor how little is left of it
        from_data("data:;base64," + "%20" * 3 * MOST, MOST)


# -- files ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """/media with a picture and a folder in it, and a secret beside it."""
    media = tmp_path / "media"
    (media / "sub dir").mkdir(parents=True)
    (media / "a.png").write_bytes(BYTES)
    (media / "sub dir" / "b%.png").write_bytes(BYTES)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "media-too").mkdir()
    (tmp_path / "media-too" / "a.png").write_bytes(b"secret")
    (media / "inside").symlink_to(media / "sub dir" / "b%.png")
    (media / "outside").symlink_to(tmp_path / "secret")
    (media / "up").symlink_to(tmp_path)
    (media / "loop").symlink_to(media / "loop")
    os.mkfifo(media / "pipe")
    return media


@pytest.mark.parametrize(
    "name",
    ["{}/a.png", "file://{}/a.png", "file:{}/a.png", "FILE://localhost{}/a.png", "a.png",
     "./sub dir/../a.png", "{}/sub dir/b%.png", "file://{}/sub%20dir/b%25.png", "inside"],
)  # fmt: skip
def test_a_file_below_the_folder_is_read(folder: Path, name: str) -> None:
    assert from_file(name.format(folder), str(folder), MOST) == BYTES


HOSTILE = [
    "{}/../secret", "../secret", "{}/sub dir/../../secret", "file://{}/../secret",
    "file://{}/%2e%2e/secret", "file://{}/..%2fsecret", "{}-too/a.png", "{}/outside",
    "{}/up/secret",
    "up/media/../secret", "/etc/passwd", "file:///etc/passwd", "file://localhost/etc/passwd",
    "file://other.example{}/a.png", "file://127.0.0.1{}/a.png", "file://{}/a.png?x", "file://a.png",
    "file:a.png", "file://", "{}/pipe", "{}", "{}/sub dir", "{}/loop", "{}/missing", "/dev/zero",
    "{}/a.png\0", "file://{}/a.png%00", "a\ud800.png", "~/a.png", "ftp://{}/a.png", "a" * 5000,
    "//other/share/a.png", "\\\\other\\share", "jar:file:{}/a.png!/x",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_is_read(folder: Path, name: str) -> None:
    with pytest.raises(UnusableMedia) as caught:
        from_file(name.format(folder), str(folder), MOST)
    assert str(folder) not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_control_without_the_folder_the_secret_would_be_read(folder: Path) -> None:
    for name in ("{}/../secret", "{}/outside", "{}/up/secret"):
        assert from_file(name.format(folder), "/", MOST) == b"secret"


@pytest.mark.parametrize("name", ["{}/a.png", "file://{}/a.png", "a.png"])
def test_without_a_folder_no_file_is_opened(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UnusableMedia, match="not opened"):
        from_file(name.format(folder), None, MOST)


def test_a_folder_that_is_a_link_is_the_folder_it_leads_to(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert from_file(f"{link}/a.png", str(link), MOST) == BYTES
    assert from_file(f"{folder}/a.png", str(link), MOST) == BYTES
    with pytest.raises(UnusableMedia):
        from_file(f"{link}/../secret", str(link), MOST)


def test_scripts_name_their_files_from_where_they_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "sub dir")
    assert from_file("../a.png", "/", MOST) == BYTES


def test_a_large_file_is_not_read(folder: Path) -> None:
    (folder / "large").write_bytes(bytes(MOST + 1))
    with pytest.raises(UnusableMedia, match="larger"):
        from_file("large", str(folder), MOST)
    os.truncate(folder / "large", 1 << 40)  # it would not fit in memory
    with pytest.raises(UnusableMedia, match="larger"):
        from_file("large", str(folder), MOST)
    os.truncate(folder / "large", MOST)
    assert len(from_file("large", str(folder), MOST)) == MOST


def test_on_a_mac_a_folder_is_the_same_however_its_name_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names are folded as its file system does it. A secret beside the folder stays one."""

    def folding(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **more: Any) -> Any:
            return real(os.fspath(path).replace("/MEDIA", "/media"), *args, **more)

        return call

    with monkeypatch.context() as mac:
        for name in ("stat", "lstat", "open", "readlink"):
            mac.setattr(os, name, folding(getattr(os, name)))
        loud = str(folder).replace("/media", "/MEDIA")
        assert from_file(f"{loud}/a.png", str(folder), MOST) == BYTES
        assert from_file(f"{folder}/a.png", loud, MOST) == BYTES
        for name in ("{}/../secret", "{}-too/a.png", "{}/outside", "{}/up/secret"):
            with pytest.raises(UnusableMedia):
                from_file(name.format(loud), str(folder), MOST)
