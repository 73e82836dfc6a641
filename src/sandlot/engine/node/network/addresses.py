"""Which addresses are public: what the server may connect to for somebody else, and what it may not."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from sandlot.engine.core.network_policy import is_closed

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: str | IPv4Address | IPv6Address, opened: Sequence[IPv4Network] = ()) -> bool:
    """Whether an address is somebody else's on the internet, or in a range that the operator opened; never this host's.

    An IPv6 address that stands for one of IPv4 is judged by that. Raises `ValueError` for what is no address.
    """
    found = _meant(ip_address(address.partition("%")[0]) if isinstance(address, str) else address)
    if isinstance(found, IPv4Address):
        return not is_closed(found, opened) and not is_of_this_host(found)
    is_special = found.is_multicast or found.is_reserved or found.is_site_local
    return found.is_global and not is_special and not is_of_this_host(found)


def is_of_this_host(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is this host's own: the kernel then uses it as the source too. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.connect((str(address), 9))
            return bool(ip_address(probe.getsockname()[0].partition("%")[0]) == address)
    except OSError:
        return False


def _meant(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address inside: mapped, 6to4, Teredo, NAT64."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None) or address
