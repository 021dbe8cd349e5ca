"""Only public addresses are public, however they are written, and whatever they hold inside."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bushel.chat.media.public_address import is_public
from tests.depth import some

NOT_PUBLIC_V4 = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
]
NOT_PUBLIC_V6 = [
    "::/128",
    "::1/128",
    "::/96",  # IPv4 in its oldest dress
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",  # Teredo
    "2001:2::/48",
    "2001:10::/28",
    "2001:db8::/32",
    "2002::/16",  # 6to4
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::200e"]


def inside(networks: list[str]) -> st.SearchStrategy[str]:
    drawn = [st.ip_addresses(network=network) for network in networks]
    return st.one_of(drawn).map(str)


def embedded(address: str) -> list[str]:
    """IPv6 addresses that lead to an IPv4 address, or might in some network."""
    number = int(ipaddress.IPv4Address(address))
    high, low = number >> 16, number & 0xFFFF
    return [
        f"::ffff:{address}",
        f"::ffff:{high:x}:{low:x}",
        f"::{address}",
        f"64:ff9b::{address}",
        f"64:ff9b:1::{address}",
        f"2002:{high:x}:{low:x}::1",
        f"2001:0:{high:x}:{low:x}::1",  # the server of a Teredo address
        f"2001::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}",  # and its client, inverted
    ]


@settings(max_examples=some(300))
@given(inside(NOT_PUBLIC_V4))
def test_no_special_ipv4_address_is_public(address: str) -> None:
    assert not is_public(address)


@settings(max_examples=some(300))
@given(inside(NOT_PUBLIC_V6))
def test_no_special_ipv6_address_is_public(address: str) -> None:
    assert not is_public(address)


@settings(max_examples=some(200))
@given(inside(NOT_PUBLIC_V4))
def test_a_special_address_inside_another_is_not_public(address: str) -> None:
    assert not [it for it in embedded(address) if is_public(it)]


@pytest.mark.parametrize("network", NOT_PUBLIC_V4 + NOT_PUBLIC_V6)
def test_the_ends_of_every_special_network_are_not_public(network: str) -> None:
    found = ipaddress.ip_network(network)
    assert not is_public(str(found[0]))
    assert not is_public(str(found[-1]))


@pytest.mark.parametrize("address", PUBLIC)
def test_control_public_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8"])
def test_control_public_addresses_are_public_where_a_network_translates_them(address: str) -> None:
    assert is_public(f"::ffff:{address}")
    assert is_public(f"64:ff9b::{address}")


@pytest.mark.parametrize(
    "written", ["", "localhost", "127.1", "0x7f000001", "017700000001", "1.1.1.1 ", "1.1.1.1/32",
                "2606:4700::1111%eth0", "fe80::1%lo", "\uff11.1.1.1", "1.1.1.1\0"]
)  # fmt: skip
def test_what_is_no_plain_address_is_not_public(written: str) -> None:
    assert not is_public(written)
