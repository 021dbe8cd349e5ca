"""Videos of any form: sampled under caps, or refused in time (B7a, B48)."""

import base64
import builtins
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from mlx_vlm.utils import load_video

from bushel.chat.media import video
from bushel.chat.media.decode import OWN
from bushel.chat.media.frame_sampling import VideoOptions
from bushel.chat.media.video import open_video
from bushel.core.video import FrameSampling
from tests.chat.media_files import chunk, encoded, film, moving, png, without_length
from tests.chat.test_media_decode import SERVER, refusal, rules, same, taken, url
from tests.depth import one_in
from tests.families.images import LARGE, MEDIUM, picture

# As Qwen's processors ask for.
TWICE_A_SECOND = FrameSampling(fps=2.0, min_frames=4, max_frames=768, factor=2)
FRAMES = [url(encoded(picture(MEDIUM, at))) for at in range(6)]


# -- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG"])
def test_a_moving_picture_is_sampled_under_the_cap(form: str) -> None:
    """Of a GIF or WebP with too many frames, some at even distances are seen. B7a."""
    data = moving(form, 10, duration=200)
    every = open_video(data, SERVER)
    some = open_video(data, rules(most_frames=4))
    assert (len(every.frames), some.indices) == (10, (0, 3, 6, 9))
    assert all(
        same(one, every.frames[at]) for one, at in zip(some.frames, some.indices, strict=True)
    )
    assert (some.total, some.fps) == (10, 5.0)


@pytest.mark.parametrize(("name", "code"), [("a.mp4", "mp4v"), ("a.mov", "mp4v"), ("a.avi", "MJPG"),
                                            ("a.mkv", "mp4v"), ("a.webm", "VP80")])  # fmt: skip
def test_a_film_is_sampled_under_the_cap(tmp_path: Path, name: str, code: str) -> None:
    """Of a film with too many frames, some at even distances are seen. B7a."""
    data = film(tmp_path / name, 10, code=code)
    every = open_video(data, SERVER)
    some = open_video(data, rules(most_frames=4))
    assert (len(every.frames), some.indices) == (10, (0, 3, 6, 9))
    assert all(
        same(one, every.frames[at]) for one, at in zip(some.frames, some.indices, strict=True)
    )
    assert (some.total, some.fps) == (10, 8.0)
    third, fourth = (np.asarray(every.frames[at], float) for at in (3, 4))
    shown = np.abs(third - np.asarray(picture(MEDIUM, 3), float)).mean()
    assert shown < 40  # codecs lose something, and a wrong frame differs by more
    assert np.abs(third - fourth).mean() > 40


@pytest.mark.parametrize(("count", "fps"), [(40, 8), (7, 8), (5, 1), (31, 30), (90, 4)])
def test_frames_are_those_that_mlx_vlm_takes_from_the_file(
    tmp_path: Path, count: int, fps: float
) -> None:
    data = film(tmp_path / "a.mp4", count, fps=fps)
    ours = open_video(data, SERVER, TWICE_A_SECOND)
    frames, metadata = load_video(str(tmp_path / "a.mp4"))
    assert list(ours.indices) == metadata.frames_indices
    assert (ours.total, ours.fps) == (metadata.total_num_frames, metadata.fps)
    assert ours.sampled_fps == pytest.approx(metadata.sampled_fps)
    own = np.stack([np.asarray(frame) for frame in ours.frames]).transpose(0, 3, 1, 2)
    assert np.array_equal(own, frames)


def test_a_recording_of_a_browser_is_counted(tmp_path: Path) -> None:
    """A WebM without a length is seen whole, at its own rate."""
    data = film(tmp_path / "a.webm", 12, code="VP80")
    unknown = open_video(without_length(data), SERVER)
    known = open_video(data, SERVER)
    assert unknown.indices == known.indices
    assert unknown.fps == pytest.approx(8, rel=0.02)
    assert all(map(same, unknown.frames, known.frames))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(video, "_MOST_DECODED", 11)
        small = rules(most_pixels=MEDIUM[0] * MEDIUM[1])
        assert "too long" in refusal(url(without_length(data)), "video_url", small)


def test_a_film_is_seen_where_a_descriptor_opened_by_name_is_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS to open /dev/fd/3 is to copy descriptor 3: whoever reads starts where it stands."""
    data, capture = film(tmp_path / "a.mp4", 10), cv2.VideoCapture

    def opened(name: str, *how: int) -> Any:
        copied = os.dup(int(name.removeprefix("/dev/fd/")))
        with open(copied, "rb") as file:
            (tmp_path / "read.mp4").write_bytes(file.read())
        return capture(str(tmp_path / "read.mp4"), *how)

    monkeypatch.setattr(cv2, "VideoCapture", opened)
    assert len(open_video(data, SERVER).frames) == 10


def test_a_film_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while it is open: its process may be killed at any moment."""
    data, capture = film(tmp_path / "a.mp4", 3), cv2.VideoCapture
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    seen: list[list[Path]] = []

    def opened(*how: Any) -> Any:
        seen.append(list(folder.iterdir()))
        return capture(*how)

    monkeypatch.setattr(cv2, "VideoCapture", opened)
    open_video(data, SERVER)
    assert seen
    assert not any(seen)


def test_without_a_decoder_a_film_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *more: Any, **others: Any) -> Any:
        if name == "cv2":
            raise ImportError(name)
        return real(name, *more, **others)

    data = url(film(tmp_path / "a.mp4", 3))
    monkeypatch.setattr(builtins, "__import__", missing)
    assert "opencv" in refusal(data, "video_url")
    assert len(taken(url(moving("GIF", 3)), "video_url").frames) == 3


# -- lists of frames --------------------------------------------------------------------------


def test_a_list_of_frames_is_a_video() -> None:
    """As Qwen's clients send it. B7a."""
    found = taken(FRAMES, "video")
    assert all(same(frame, picture(MEDIUM, at)) for at, frame in enumerate(found.frames))
    assert (found.indices, found.total, found.fps) == (tuple(range(6)), 6, 2.0)
    assert taken(FRAMES, "video", fps=0.5).fps == 0.5
    assert taken(FRAMES, "video", fps=0.5, sample_fps=4).fps == 4


def test_frames_in_one_url_are_a_video() -> None:
    """As vLLM's clients send it: data:video/jpeg;base64,…,…. B7a."""
    frames = [encoded(picture(MEDIUM, at), "JPEG") for at in range(3)]
    packed = ",".join(base64.b64encode(frame).decode() for frame in frames)
    found = taken(f"data:video/jpeg;base64,{packed}", "video_url")
    assert found.total == 3
    assert all(
        same(one, other)
        for one, other in zip(
            found.frames, taken(list(map(url, frames)), "video").frames, strict=True
        )
    )
    alone = packed.partition(",")[0]
    assert len(taken(f"data:video/jpeg;base64,{alone}", "video_url").frames) == 1


def test_scripts_have_frames_in_memory() -> None:
    pictures = [picture(MEDIUM, at) for at in range(4)]
    arrays = np.stack([np.asarray(it) for it in pictures])
    for source in (pictures, tuple(pictures), arrays):
        found = taken(source, "video", OWN)
        assert all(map(same, found.frames, pictures))


def test_of_a_long_list_those_that_are_not_looked_at_are_not_opened() -> None:
    listed = [FRAMES[0], "data:,no picture", FRAMES[2], "data:,no picture", FRAMES[4]]
    found = taken(listed, "video", rules(most_frames=3))
    assert found.indices == (0, 2, 4)
    assert found.total == 5
    assert "cannot be decoded" in refusal(listed, "video")


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ([], "between 1 and"),
        ([FRAMES[0]] * 65_537, "between 1 and"),
        ([FRAMES[0], url(encoded(picture(LARGE)))], "the same size"),
        ([FRAMES[0], 7], "A frame needs"),
        ([FRAMES[0], "http://127.0.0.1/a.png"], "not fetched"),
        ([FRAMES[0], "/etc/hostname"], "not opened"),
        (f"data:video/jpeg;base64,{',' * 70_000}", "between 1 and"),
        ("data:video/jpeg;base64,@@,@@", "base64"),
    ],
)
def test_a_list_that_is_no_video_is_refused(listed: Any, why: str) -> None:
    assert why in refusal(listed, "video")


def test_the_bytes_of_all_frames_count() -> None:
    frames = [encoded(picture(MEDIUM, at)) for at in range(3)]
    most = sum(map(len, frames))
    listed = list(map(url, frames))
    assert len(taken(listed, "video", rules(most_bytes=most)).frames) == 3
    assert "larger" in refusal(listed, "video", rules(most_bytes=most - 1))


# -- what a request asks for ------------------------------------------------------------------


def test_a_request_says_which_frames_it_wants(tmp_path: Path) -> None:
    sent = url(film(tmp_path / "a.mp4", 40))  # five seconds

    def indices(**beside: Any) -> tuple[int, ...]:
        found: tuple[int, ...] = taken(sent, "video_url", **beside).indices
        return found

    assert len(indices()) == 40
    assert len(indices(fps=2)) == 10
    assert indices(nframes=3) == (0, 20, 39)
    assert len(indices(fps=8, max_frames=6)) == 6
    assert len(indices(fps=0.1, min_frames=6)) == 6
    assert indices(fps=1, video_start=2, video_end=4) == (16, 32)
    assert taken({"url": sent, "nframes": 3}, "video_url").indices == (0, 20, 39)


def test_a_part_of_a_film_is_told_the_times_of_that_part(tmp_path: Path) -> None:
    """As the same part would be that is a film of its own, or a file that ends there."""
    first = open_video(film(tmp_path / "first.mp4", 33), SERVER, TWICE_A_SECOND)
    whole = film(tmp_path / "a.avi", 160, code="MJPG")  # twenty seconds
    part = taken(url(whole), "video_url", fps=2, video_end=4)
    middle = taken(url(whole), "video_url", fps=2, video_start=4, video_end=8)
    assert len(part.frames) == len(middle.frames) == len(first.frames) == 8
    assert part.sampled_fps == middle.sampled_fps == first.sampled_fps
    broken = open_video(whole[: len(whole) // 4], SERVER, TWICE_A_SECOND)
    assert 4 < len(broken.frames) < 20
    assert broken.sampled_fps == pytest.approx(2, rel=0.15)


@pytest.mark.parametrize("count", [1, 2, 9, 40])
def test_times_of_a_whole_video_are_those_that_mlx_vlm_tells(tmp_path: Path, count: int) -> None:
    data = film(tmp_path / "a.mp4", count)
    for number in range(1, count + 1):
        shown = open_video(data, SERVER, options=VideoOptions(nframes=number))
        assert shown.sampled_fps == len(shown.frames) / shown.total * shown.fps


def test_a_request_says_how_large_frames_are(tmp_path: Path) -> None:
    sent = url(film(tmp_path / "a.mp4", 8))
    width, height = MEDIUM

    def size(**beside: Any) -> tuple[int, int]:
        for found in (taken(sent, "video_url", **beside), taken(FRAMES, "video", **beside)):
            shown: tuple[int, int] = found.frames[0].size
        return shown

    assert size() == MEDIUM
    assert size(max_pixels=width * height // 4) == (width // 2, height // 2)
    assert size(max_pixels=width * height) == MEDIUM
    assert size(min_pixels=4 * width * height) == (2 * width, 2 * height)
    assert size(resized_width=40, resized_height=20) == (40, 20)
    assert size(total_pixels=6 * width * height // 8) == (width // 2, height // 2)


@pytest.mark.parametrize(
    ("beside", "why"),
    one_in(
        2,
        [
            ({"fps": 0}, "fps must be"),
            ({"fps": "2"}, "fps must be"),
            ({"fps": float("nan")}, "fps must be"),
            ({"nframes": 10**400}, "nframes must be"),
            ({"nframes": 2.5}, "nframes must be a whole"),
            ({"max_frames": True}, "max_frames must be"),
            ({"video_start": 99}, "video_start is after"),
            ({"video_start": 2, "video_end": 1}, "video_end must be"),
            ({"resized_width": 9}, "together"),
            ({"min_pixels": 1 << 36}, "too large"),
            ({"resized_width": 8000, "resized_height": 8000}, "too many"),
        ],
    ),
)
def test_a_wish_that_cannot_be_met_is_refused(beside: dict[str, Any], why: str) -> None:
    assert why in refusal(url(moving("GIF", 6)), "video_url", **beside)


# -- caps, and hostile files ------------------------------------------------------------------


def test_large_frames_are_fewer(tmp_path: Path) -> None:
    """What a video may hold in memory is counted in pixels."""
    under = rules(most_pixels=MEDIUM[0] * MEDIUM[1])
    for data in (moving("GIF", 10), film(tmp_path / "a.mp4", 10)):
        assert len(open_video(data, under).frames) == 4


@pytest.mark.parametrize("form", ["GIF", "film"])
def test_a_video_that_takes_too_long_to_read_is_refused(tmp_path: Path, form: str) -> None:
    size = (16, 16)
    data = moving("GIF", 30, size) if form == "GIF" else film(tmp_path / "a.mp4", 30, size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(video, "_MOST_DECODED", 29)
        assert "too long" in refusal(url(data), "video_url", rules(most_pixels=256))
        patch.setattr(video, "_MOST_DECODED", 30)
        assert len(taken(url(data), "video_url", rules(most_pixels=256)).frames) == 4


def test_a_video_of_hours_is_refused(tmp_path: Path) -> None:
    """However few frames it has."""
    slow = [
        moving("GIF", 7, duration=600_000),
        film(tmp_path / "a.avi", 40, code="MJPG", fps=0.01),
        film(tmp_path / "a.mkv", 40, fps=0.01),
    ]
    for data in slow:
        assert "seconds, and 3600 at most" in refusal(url(data), "video_url")
        assert taken(url(data), "video_url", rules(most_seconds=5000)).frames


def test_a_picture_that_promises_a_billion_frames_is_refused() -> None:
    data = moving("PNG", 2)
    at = data.index(b"acTL") + 4
    many = chunk(b"acTL", struct.pack(">II", 1 << 30, 0))
    bomb = data[: at - 8] + many + data[at + 12 :]
    assert "too long" in refusal(url(bomb), "video_url")
    assert taken(url(bomb)).size == MEDIUM  # its first picture is harmless


def test_a_film_of_huge_frames_is_refused(tmp_path: Path) -> None:
    """A few bytes of black; its header tells. One whose header lies has nothing to show."""
    writer = cv2.VideoWriter(
        str(tmp_path / "a.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 8, (2400, 2000)
    )
    writer.write(np.zeros((2000, 2400, 3), np.uint8))
    writer.release()
    bomb = (tmp_path / "a.avi").read_bytes()
    assert len(bomb) < 1 << 17
    assert "2400x2000 pixels is too large" in refusal(
        url(bomb), "video_url", rules(most_pixels=1 << 22)
    )
    data, begin = film(tmp_path / "b.avi", 4, code="MJPG"), b"\xff\xc0\0\x11\x08"
    lying = data.replace(
        begin + struct.pack(">HH", *reversed(MEDIUM)), begin + struct.pack(">HH", 16_000, 16_000)
    )
    assert lying != data
    assert "cannot be decoded" in refusal(url(lying), "video_url")


PLAYLIST = (
    b"#EXT-X-TARGETDURATION:5\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:5,\nfile://SECRET\n#EXT-X-ENDLIST\n"
)
NO_FILMS = {
    "text": b"no video at all",
    "nothing": b"",
    "a playlist": b"#EXTM3U\n#EXTINF:5,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n",
    "a playlist that looks like an AVI": b"#EXTM3U\nAVI \n" + PLAYLIST,
    "a list of files": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "a description": b"<?xml version='1.0'?><MPD><BaseURL>http://127.0.0.1/</BaseURL></MPD>",
    "only a beginning": b"\0\0\0\x18ftypisom" + bytes(200),
    "only a beginning of Matroska": b"\x1a\x45\xdf\xa3" + bytes(200),
    "only a beginning of AVI": b"RIFF\0\1\0\0AVI LIST" + bytes(200),
    "a session that begins like Matroska": b"\x1a\x45\xdf\xa3\nv=0\nc=IN IP4 127.0.0.1\nm=video 9",
    "a photograph": encoded(picture(), "JPEG"),
    "a bomb": png(60_000, 60_000, b""),
}


@pytest.mark.parametrize("case", NO_FILMS)
def test_what_is_no_video_is_refused(case: str) -> None:
    said = refusal(url(NO_FILMS[case]), "video_url")
    assert "cannot be decoded" in said or "too large" in said


def test_a_playlist_opens_nothing(tmp_path: Path) -> None:
    """Not even one that begins as a film does: the file it names would be seen."""
    secret = tmp_path / "secret.avi"
    film(secret, 3, code="MJPG")
    named = PLAYLIST.replace(b"SECRET", str(secret).encode())
    for begin in (b"#EXTM3U\n", b"#EXTM3U\nAVI \n"):
        assert "it is no MP4" in refusal(url(begin + named), "video_url")


def test_a_film_that_is_cut_off_is_what_is_left_of_it(tmp_path: Path) -> None:
    data = film(tmp_path / "a.avi", 10, code="MJPG")
    found = open_video(data[: len(data) * 6 // 10], SERVER)
    assert 0 < len(found.frames) < 10
    assert len(found.indices) == len(found.frames)
    data = film(tmp_path / "a.mp4", 10)  # its index is at its end
    assert "cannot be decoded" in refusal(url(data[: len(data) // 2]), "video_url")


def test_a_film_without_frames_is_refused(tmp_path: Path) -> None:
    for name, code in (("a.mp4", "mp4v"), ("a.avi", "MJPG"), ("a.webm", "VP80")):
        data = film(tmp_path / name, 0, code=code)
        assert "cannot be decoded" in refusal(url(data), "video_url")


def test_broken_films_are_not_spoken_of_in_the_log(tmp_path: Path) -> None:
    """In a process that opens its first film: the decoder decides once what it prints."""
    data = film(tmp_path / "a.mp4", 10)
    broken = [*NO_FILMS.values(), data[: len(data) // 2], data[:500] + data[700:], data[:-20]]
    for at, it in enumerate(broken):
        (tmp_path / f"{at}.film").write_bytes(it)
    script = f"""
import pathlib, sys
from bushel.chat.media.decode import OWN
from bushel.chat.media.frame_sampling import VideoOptions
from bushel.chat.media.media_source import UnusableMedia
from bushel.chat.media.video import open_video
print("begin", file=sys.stderr)
for file in sorted(pathlib.Path({str(tmp_path)!r}).glob("*.film")):
    try:
        open_video(file.read_bytes(), OWN)
    except UnusableMedia:
        print("refused")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.endswith("begin\n")
    assert done.stdout.count("refused") >= len(NO_FILMS) + 1
