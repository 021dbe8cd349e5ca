"""Which addresses are public: those that anyone on the internet reaches, and nobody else's.

The standard library's `is_global` differs between releases of Python and lets some through that
are special; both have to agree here.
"""

from __future__ import annotations

import ipaddress

# IANA's registries of special addresses, without the few that belong to the whole internet.
_SPECIAL_V4 = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by the customers of a carrier, and by overlay networks
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local; the metadata services of clouds
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays from IPv4 to 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)
# Of IPv6 only this is given to the public so far; loopback, private, link-local and multicast
# addresses are all outside.
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # protocols, among them Teredo, which holds an IPv4 address
        "2001:db8::/32",
        "2002::/16",  # 6to4, which holds an IPv4 address
        "3fff::/20",  # documentation
    )
)
# The last four bytes are the IPv4 address that is reached.
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")  # all of IPv4, as networks without it see it


def is_public(address: str) -> bool:
    """Of an address as a name server gives it; what is no address is not public."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return _is_public_v4(parsed)
    if parsed.scope_id is not None:
        return False
    if parsed in _MAPPED or parsed in _TRANSLATED:
        return _is_public_v4(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF))
    special = any(parsed in network for network in _SPECIAL_V6)
    return parsed in _UNICAST_V6 and parsed.is_global and not special


def _is_public_v4(address: ipaddress.IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _SPECIAL_V4)
