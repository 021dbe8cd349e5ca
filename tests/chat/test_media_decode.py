"""Images and videos of any origin: decoded as the library decodes them, or refused (B48)."""

import base64
import contextlib
import io
import struct
import time
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_vlm.utils import load_image
from PIL import Image, UnidentifiedImageError

from bushel.chat.media import decode
from bushel.chat.media.decode import OWN, Intake
from bushel.chat.media.fetch import Fetcher
from bushel.chat.media.image import open_image
from bushel.chat.media.media_source import UnusableMedia
from bushel.chat.media.video import open_video
from bushel.core import RequestError
from bushel.core.video import Video
from bushel.core.wire import MediaRules
from tests.chat.media_files import FORMATS, SMALL_ROWS, chunk, encoded, moving, png
from tests.chat.web_site import Site, answer, open_site
from tests.depth import some
from tests.families.images import LARGE, MEDIUM, picture

SERVER = MediaRules()


def rules(**more: Any) -> MediaRules:
    return MediaRules(**more)


def url(data: bytes) -> str:
    return f"data:;base64,{base64.b64encode(data).decode()}"


def taken(source: Any, kind: str = "image_url", under: MediaRules = SERVER, **beside: Any) -> Any:
    intake = Intake(under)
    intake.take("messages[3].content[1]", kind, source, beside)
    return intake.items[0]


def refusal(source: Any, kind: str = "image_url", under: MediaRules = SERVER, **beside: Any) -> str:
    with pytest.raises(RequestError) as caught:
        taken(source, kind, under, **beside)
    error = caught.value
    assert (error.code, error.param) == ("invalid_media", "messages")
    said = str(error)
    assert said.startswith("messages[3].content[1]: ")
    assert "\n" not in said
    assert len(said) < 300
    for leak in (" 0x", "<", "object at", "/tmp", "Errno", "PIL"):
        assert leak not in said
    return said


def same(one: Image.Image, two: Image.Image) -> bool:
    return one.size == two.size and one.mode == two.mode and one.tobytes() == two.tobytes()


# -- as the library does ----------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_decoded_as_mlx_vlm_decodes_it(form: str) -> None:
    data = encoded(picture(LARGE), form)
    assert same(open_image(data, SERVER), load_image(io.BytesIO(data)))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "F"])
def test_every_mode_is_converted_as_mlx_vlm_converts_it(mode: str) -> None:
    form = "TIFF" if mode in ("CMYK", "F") else "PNG"
    source = picture(LARGE)
    if mode == "RGBA":
        source.putalpha(picture(LARGE, 1).convert("L"))
    data = encoded(source.convert(mode), form)
    assert same(open_image(data, SERVER), load_image(io.BytesIO(data)))


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_grey_of_16_bits_keeps_its_brightness(form: str) -> None:
    """mlx-vlm's loader makes all of it white that is brighter than 255 of 65,535."""
    grey = picture(LARGE).convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) << 8)
    assert same(open_image(encoded(deep, form), SERVER), grey.convert("RGB"))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_picture_is_set_upright_as_mlx_vlm_does(form: str, orientation: int) -> None:
    """So a photograph looks the same to the model whichever way the phone was held."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(picture(LARGE), form, exif=exif)
    found = open_image(data, SERVER)
    assert same(found, load_image(io.BytesIO(data)))
    assert same(found, load_image(found))  # nobody turns it again
    assert found.size == (LARGE if orientation < 5 else LARGE[::-1])


def test_a_script_may_give_the_picture_itself() -> None:
    shown = picture(LARGE)
    assert same(taken({"url": shown}, under=OWN), shown)
    assert same(taken(shown.convert("RGBA"), under=OWN), shown)


def test_the_first_picture_of_a_moving_one_is_the_image() -> None:
    for form in ("GIF", "WEBP", "PNG", "TIFF"):
        data = moving(form, 3)
        assert same(open_image(data, SERVER), load_image(io.BytesIO(data)))


def test_a_picture_of_two_cameras_is_a_picture() -> None:
    data = encoded(picture(LARGE), "MPO", save_all=True, append_images=[picture(LARGE, 1)])
    assert same(open_image(data, SERVER), load_image(io.BytesIO(data)))


# -- forms of a part --------------------------------------------------------------------------


@pytest.mark.parametrize("detail", ["auto", "low", "high", None])
def test_a_part_is_a_url_or_an_object_with_one(detail: str | None) -> None:
    shown = picture(LARGE)
    sent = url(encoded(shown))
    assert same(taken(sent), shown)
    assert same(taken({"url": sent, "detail": detail}), shown)


@pytest.mark.parametrize("kind", ["image_url", "video_url"])
@pytest.mark.parametrize("source", [None, "", {}, {"url": None}, {"url": 5}, {"url": [""]}, [], 7])
def test_a_part_without_a_url_is_refused(kind: str, source: Any) -> None:
    """The message says which kind of part needs a url. B17."""
    assert f"{kind} needs a url" in refusal(source, kind)


# -- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1), (3, 100), (100, 3)])
def test_a_tiny_picture_is_enlarged(size: tuple[int, int]) -> None:
    """CVE-2026-22773: a 1x1 image crashed an engine. Its pixels stay what they are."""
    scale = -(-4 // min(size))
    large = picture(size).resize((size[0] * scale, size[1] * scale), Image.Resampling.NEAREST)
    assert same(taken(url(encoded(picture(size)))), large)
    assert same(taken(picture(size), under=OWN), large)
    [frame] = taken(url(encoded(picture(size))), "video_url").frames
    assert same(frame, large)
    assert taken(url(encoded(picture((4, 4))))).size == (4, 4)


def test_a_line_that_would_be_too_large_is_not_enlarged() -> None:
    line = url(encoded(picture((1, 1000))))
    assert "4x4000 pixels is too large" in refusal(line, under=rules(most_pixels=15_999))
    assert taken(line, under=rules(most_pixels=16_000)).size == (4, 4000)


@pytest.mark.parametrize(
    ("limits", "good", "bad"),
    [
        ({"most_images": 1}, ["image_url", "video_url", "video_url"], "image_url"),
        ({"most_videos": 0}, ["image_url"] * 3, "video_url"),
    ],
)
def test_each_kind_has_a_limit_of_its_own(
    limits: dict[str, int], good: list[str], bad: str
) -> None:
    intake, sent = Intake(rules(**limits)), url(encoded(picture((8, 8)), "GIF"))
    for kind in good:
        intake.take("here", kind, sent)
    with pytest.raises(RequestError, match=f"hold . {bad.removesuffix('_url')}s"):
        intake.take("here", bad, sent)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("padded", [True, False])
def test_base64_needs_no_url_around_it(form: str, padded: bool) -> None:
    data = encoded(picture(LARGE), form)
    sent = base64.b64encode(data).decode()
    assert same(taken(sent if padded else sent.rstrip("=")), taken(url(data)))


@pytest.mark.parametrize("name", ["/9j/photo.png", "iVBORw0KGgo.png", "Qk" * 40 + ".bmp"])
def test_a_path_that_begins_like_base64_is_a_path(name: str) -> None:
    assert "not opened here" in refusal(name)


@pytest.mark.parametrize("form", FORMATS)
def test_a_picture_of_too_many_pixels_is_refused(form: str) -> None:
    data = url(encoded(picture((100, 50)), form))
    assert "pixels is too large" in refusal(data, under=rules(most_pixels=4999))
    assert taken(data, under=rules(most_pixels=5000)).size == (100, 50)


@pytest.mark.parametrize(
    "size", [(10_000, 10_000), (20_000, 20_000), (1, 1 << 30), ((1 << 31) - 1, 4)]
)
def test_a_bomb_is_known_by_its_header(size: tuple[int, int]) -> None:
    """CVE-2026-5497. There is nothing in it that could be decoded."""
    assert "pixels is too" in refusal(url(png(*size, b"")))


def test_a_frame_that_is_larger_than_its_screen_is_measured() -> None:
    data = bytearray(moving("GIF", 2, MEDIUM))
    data[6:10] = struct.pack("<HH", 8, 8)
    least = MEDIUM[0] * MEDIUM[1]
    for kind in ("image_url", "video_url"):
        assert "pixels is too large" in refusal(
            url(bytes(data)), kind, rules(most_pixels=least - 1)
        )
    assert taken(url(bytes(data))).size == MEDIUM


def test_a_later_frame_that_is_larger_is_measured_before_it_is_decoded() -> None:
    small, large = encoded(picture((8, 8)), "GIF"), encoded(picture(MEDIUM), "GIF")
    colours = 13 + 3 * 2 ** ((large[10] & 7) + 1)
    both = small[:-1] + large[large.index(b",", colours) :]
    under = rules(most_pixels=MEDIUM[0] * MEDIUM[1] - 1)
    assert "pixels is too large" in refusal(url(both), "video_url", under)
    assert [it.size for it in taken(url(both), "video_url").frames] == [(8, 8), MEDIUM]


def test_bytes_are_counted(tmp_path: Path) -> None:
    data = encoded(picture(LARGE))
    (tmp_path / "a.png").write_bytes(data)
    for source in (url(data), str(tmp_path / "a.png")):
        under = rules(folder=str(tmp_path), most_bytes=len(data))
        assert same(taken(source, under=under), picture(LARGE))
        under = rules(folder=str(tmp_path), most_bytes=len(data) - 1)
        assert "larger" in refusal(source, under=under)


def test_images_and_videos_are_counted_together() -> None:
    intake = Intake(rules(most_items=3))
    for at, kind in enumerate(["image_url", "video_url", "image_url"]):
        intake.take(f"part {at}", kind, url(encoded(picture())))
    with pytest.raises(RequestError, match="part 3: A request may hold 3"):
        intake.take("part 3", "image_url", url(encoded(picture())))
    assert len(intake.items) == 3


def test_all_pixels_of_a_request_are_counted_together() -> None:
    """Each is small enough; a hundred of them are not."""
    intake = Intake(rules(most_pixels=32 * 32))
    shown = url(encoded(picture((32, 32))))
    for at in range(4):
        intake.take(f"part {at}", "image_url", shown)
    with pytest.raises(RequestError, match=r"part 4: .*too many pixels"):
        intake.take("part 4", "image_url", shown)


# -- hostile files ----------------------------------------------------------------------------

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n%%EOF\n"
OTHERS = {
    "EPS": EPS,
    "PPM": b"P6 8 8 255\n" + bytes(8 * 8 * 3),
    "ICNS": encoded(picture((64, 64)), "ICNS"),
    "ICO": encoded(picture((64, 64)), "ICO"),
    "TGA": encoded(picture((64, 64)), "TGA"),
    "PCX": encoded(picture((64, 64)), "PCX"),
}


@pytest.mark.parametrize("form", OTHERS)
def test_formats_that_nobody_needs_are_not_opened(form: str) -> None:
    assert "it is no PNG" in refusal(url(OTHERS[form]))
    assert "it is no MP4" in refusal(url(OTHERS[form]), "video_url")
    assert Image.open(io.BytesIO(OTHERS[form])).format == form  # Pillow itself would


@pytest.mark.parametrize(
    "data", [b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7", b"GIF"]
)
def test_drawings_are_no_pictures(data: bytes) -> None:
    assert "cannot be decoded" in refusal(url(data))
    with pytest.raises(UnidentifiedImageError):
        Image.open(io.BytesIO(data))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
def test_a_picture_that_is_cut_off_is_refused(form: str, share: float) -> None:
    data = encoded(picture((200, 200)), form)
    assert "cannot be decoded" in refusal(url(data[: int(len(data) * share)]))


def test_texts_in_a_picture_do_not_fill_the_memory() -> None:
    large = zlib.compress(bytes(50 << 20), 9)
    for extra in (
        chunk(b"zTXt", b"a\0\0" + large),
        chunk(b"iTXt", b"a\0\1\0\0\0" + large),
        chunk(b"iCCP", b"a\0\0" + large),
    ):
        bomb = png(8, 8, SMALL_ROWS, [extra])
        with contextlib.suppress(UnusableMedia):  # refused, or the text left out
            found = open_image(bomb, SERVER)
            assert sum(len(str(it)) for it in found.info.values()) < 1 << 20
    many = [chunk(b"zTXt", b"a%d\0\0" % at + zlib.compress(bytes(1 << 20), 9)) for at in range(70)]
    assert "cannot be decoded" in refusal(url(png(8, 8, SMALL_ROWS, many)))
    assert taken(url(png(8, 8, SMALL_ROWS))).size == (8, 8)  # a control


def test_more_rows_than_a_picture_has_are_not_unpacked() -> None:
    bomb = png(8, 8, SMALL_ROWS + bytes(100 << 20))
    assert taken(url(bomb)).size == (8, 8)


@settings(max_examples=some(250))
@given(
    st.sampled_from(FORMATS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=12),
    st.sampled_from([open_image, open_video]),
)
def test_any_damage_is_survived(form: str, damage: list[tuple[float, int]], read: Any) -> None:
    data = bytearray(encoded(picture(LARGE), form))
    for where, byte in damage:
        data[int(where * (len(data) - 1))] = byte
    with contextlib.suppress(UnusableMedia):
        found = read(bytes(data), rules(most_pixels=1 << 20))
        for frame in found.frames if isinstance(found, Video) else [found]:
            assert frame.mode == "RGB"
            assert frame.width * frame.height <= 1 << 20


# -- from elsewhere ---------------------------------------------------------------------------


@pytest.fixture
def site() -> Iterator[Site]:
    with open_site() as site:
        site.pages["/a.png"] = answer(encoded(picture(LARGE)))
        site.pages["/not.png"] = answer(b"hello")
        yield site


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is public."""
    monkeypatch.setattr(decode, "Fetcher", partial(Fetcher, allowed="127.0.0.1".__eq__))


REMOTE = rules(remote=True)


def test_nothing_is_fetched_unless_it_is_allowed(site: Site, reachable: None) -> None:
    for under in (SERVER, OWN):
        assert "not fetched" in refusal(site.url("/a.png"), under=under)
    assert site.connections == 0
    assert same(taken(site.url("/a.png"), under=REMOTE), picture(LARGE))  # a control


def test_this_machine_is_not_fetched_from_even_then(site: Site) -> None:
    """CVE-2025-6242."""
    for host in ("127.0.0.1", "localhost", "[::1]", "example.com\\@127.0.0.1"):
        refusal(site.url("/a.png", host), under=REMOTE)
    assert site.connections == 0


def test_the_rules_reach_the_fetch(site: Site, reachable: None) -> None:
    elsewhere = rules(remote=True, domains=("pictures.example",))
    assert "host" in refusal(site.url("/a.png"), under=elsewhere)
    assert site.connections == 0
    assert "larger" in refusal(site.url("/a.png"), under=rules(remote=True, most_bytes=100))
    assert "cannot be decoded" in refusal(site.url("/not.png"), under=REMOTE)
    assert "status 404" in refusal(site.url("/none.png"), under=REMOTE)


def test_many_slow_pictures_share_a_limit(site: Site, reachable: None) -> None:
    """Each comes within its own."""

    def slowly(connection: Any) -> None:
        time.sleep(0.15)
        connection.sendall(answer(encoded(picture())))

    site.pages["/slow.png"] = slowly
    intake = Intake(rules(remote=True, fetch_seconds=0.3))

    def take_all() -> None:
        for at in range(12):
            intake.take(f"part {at}", "image_url", site.url("/slow.png"))

    with pytest.raises(RequestError, match="within"):
        take_all()


def test_local_files_are_opened_for_scripts_and_below_the_folder(tmp_path: Path) -> None:
    """CVE-2024-37032."""
    file = tmp_path / "in" / "a.png"
    file.parent.mkdir()
    picture(LARGE).save(file)
    assert same(taken(str(file), under=OWN), picture(LARGE))
    assert "not opened" in refusal(str(file))
    assert "not opened" in refusal(f"file://{file}")
    below = rules(folder=str(tmp_path / "in"))
    assert same(taken(f"file://{file}", under=below), picture(LARGE))
    assert "not below" in refusal("../x", under=below)
