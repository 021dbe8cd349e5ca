"""URLs are read in one way or refused; no spelling of a private address gets through."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.chat.media.fetch import Target, in_domains, look_up, parse
from bushel.chat.media.media_source import UnusableMedia
from bushel.chat.media.public_address import is_public
from tests.depth import some


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://example.com", Target("http", "example.com", 80, "/")),
        ("HTTPS://Example.COM/a.png", Target("https", "example.com", 443, "/a.png")),
        ("https://example.com.:8443/a?b=c&d#e", Target("https", "example.com", 8443, "/a?b=c&d")),
        ("http://example.com?q", Target("http", "example.com", 80, "/?q")),
        ("http://[2606:4700::1111]:81/", Target("http", "2606:4700::1111", 81, "/")),
        ("http://1.1.1.1/%20x", Target("http", "1.1.1.1", 80, "/%20x")),
        ("https://bücher.example/ü", Target("https", "xn--bcher-kva.example", 443, "/%C3%BC")),
        ("https://my_bucket.example/@me", Target("https", "my_bucket.example", 443, "/@me")),
    ],
)
def test_ordinary_urls_are_understood(url: str, target: Target) -> None:
    assert parse(url) == target


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example\\@127.0.0.1/",  # CVE-2026-24779
        "http://127.0.0.1\\@good.example/",
        "http:\\\\127.0.0.1/",
        "http:/\\127.0.0.1/",
        "http://example.com/a\\b",
        "http://user@127.0.0.1/",
        "http://good.example:80@127.0.0.1/",
        "http://user:pass@example.com/",
        "http://good.example\t@127.0.0.1/",
        "http://a b.example/",
        "http://example.com/\r\nHost: other",
        "http://example.com/\0",
        "http://exa\u200bmple.com/",
        " http://example.com/",
        "http://example.com/ ",
        "http://",
        "http:///a.png",
        "http:example.com",
        "http://:80/",
        "http://example.com:/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:+80/",
        "http://example.com:80:80/",
        "http://[::1/",
        "http://::1/",
        "http://[fe80::1%25eth0]/",
        "http://[::1]x/",
        "http://[1]/",
        "http://[1.1.1.1]/",
        "http://[.]/",
        "http://[:::]/",
        "http://a..b/",
        "http://.example/",
        "http://-a.example/",
        "http://%31%32%37.0.0.1/",
        "http://127.0.0.1%2f.example/",
        "http://" + "a" * 64 + ".example/",
        "http://" + "a." * 130 + "example/",
        "http://ex\u2100mple.com/",  # becomes a/c
        "ftp://example.com/",
        "gopher://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "example.com",
        "",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(UnusableMedia):
        parse(url)


def test_who_sends_a_password_is_told_that_it_is_not_used() -> None:
    with pytest.raises(UnusableMedia, match="password"):
        parse("https://user:pass@example.com/")


def spellings(address: str) -> list[str]:
    """Hosts that some reader of URLs takes for this IPv4 address."""
    a, b, c, d = (int(it) for it in address.split("."))
    number = int(ipaddress.IPv4Address(address))
    wide = {ord("."): 0x3002} | {digit: digit + 0xFEE0 for digit in b"0123456789"}
    return [
        address,
        f"{address}.",
        f"{number}",
        f"{number:#x}",
        f"0{number:o}",
        f"{a}.{(b << 16) + (c << 8) + d}",
        f"{a}.{b}.{(c << 8) + d}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"{a:04o}.{b:04o}.{c:04o}.{d:04o}",
        f"{a:#010x}.{b}.{c}.{d}",
        f"00{a}.{b}.{c}.{d}",
        address.translate(wide),
        f"[::ffff:{address}]",
        f"[::ffff:{number >> 16:x}:{number & 0xFFFF:x}]",
        f"[0:0:0:0:0:ffff:{address}]",
        f"[::{address}]",
        f"[64:ff9b::{address}]",
        f"[2002:{number >> 16:x}:{number & 0xFFFF:x}::]",
        f"user@{address}",
        f"1.1.1.1\\@{address}",
        f"{address}#@1.1.1.1",
        f"{address}?@1.1.1.1",
    ]


def reached(host: str) -> list[str]:
    """Addresses that a URL with this host would lead to, if they are public."""
    try:
        target = parse(f"http://{host}/a.png")
        found = look_up(target.host, target.port)
    except (UnusableMedia, OSError):
        return []
    return found if all(is_public(it) for it in found) else []


private = st.one_of(
    st.ip_addresses(network=network).map(str)
    for network in ("127.0.0.0/8", "10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12",
                    "169.254.0.0/16", "100.64.0.0/10", "0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")
)  # fmt: skip


@settings(max_examples=some(60))
@given(private)
def test_a_private_address_is_not_reached_in_any_spelling(address: str) -> None:
    assert {host: found for host in spellings(address) if (found := reached(host))} == {}


def test_control_a_public_address_is_reached() -> None:
    assert reached("1.1.1.1") == ["1.1.1.1"]
    assert reached("[::ffff:1.1.1.1]") != []


@settings(max_examples=some(300))
@given(st.text(alphabet="htps:/\\@.#?[]%0x127 aé\t\r\n。", max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        target = parse("http://" + text)
    except UnusableMedia:
        return
    assert parse(target.url) == target  # nobody who reads it again sees another goal
    assert target.path.isascii()
    assert target.path.isprintable()
    assert " " not in target.path
    assert not set(target.host) & set("/\\@#?% ")


def test_domains_are_exact_or_all_below() -> None:
    rules = ("example.com", "*.pictures.example", "BÜCHER.example.")
    for host in ("example.com", "a.pictures.example", "a.b.pictures.example",
                 "xn--bcher-kva.example"):  # fmt: skip
        assert in_domains(host, rules)
    for host in ("www.example.com", "pictures.example", "xpictures.example", "example.com.evil",
                 "notexample.com", "com", "1.1.1.1"):  # fmt: skip
        assert not in_domains(host, rules)
    assert in_domains("anything.example", ())
