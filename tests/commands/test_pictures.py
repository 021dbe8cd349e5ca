"""Which paths in a message are pictures, and how they are written there."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from bushel.commands.pictures import data_url, take_pictures
from bushel.core import BushelError
from tests.drawings import see


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a.png", "with space.jpg", "it's.webp", "B.GIF", "paren (1).png"):
        see("circle").save(tmp_path / name)
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


@pytest.mark.parametrize(
    ("message", "text", "names"),
    [
        ("What is a.png ?", "What is ?", ["a.png"]),
        ("~/a.png and ./B.GIF", "and", ["a.png", "B.GIF"]),
        ("see with\\ space.jpg now", "see now", ["with space.jpg"]),
        ("see 'with space.jpg'", "see", ["with space.jpg"]),
        ('"it\'s.webp" what?', "what?", ["it's.webp"]),
        ("paren\\ \\(1\\).png", "", ["paren (1).png"]),
        ("text.png notes.txt gone.png", "text.png notes.txt gone.png", []),
        ("it's  what  I 'said'", "it's  what  I 'said'", []),
        ("", "", []),
    ],
)
def test_paths_are_found_as_people_write_them(
    folder: Path, message: str, text: str, names: list[str]
) -> None:
    rest, paths = take_pictures(message)
    assert (rest, [path.name for path in paths]) == (text, names)


def test_an_address_of_a_file_is_one(folder: Path) -> None:
    rest, [path] = take_pictures(f"file://{folder}/with%20space.jpg what?")
    assert (rest, path.name) == ("what?", "with space.jpg")


def test_it_is_sent_as_it_is(folder: Path) -> None:
    head, _, data = data_url(folder / "a.png").partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data) == (folder / "a.png").read_bytes()
    for name in ("text.png", "gone.png"):
        with pytest.raises(BushelError, match=name):
            data_url(folder / name)
