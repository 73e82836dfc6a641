"""Which addresses are public: what sandboxes reach, and what the server connects to for somebody else."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from contextlib import closing
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# What no sandbox reaches unless the operator opens it: private, shared, local and reserved addresses.
CLOSED = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's platform services, with a public address
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def is_closed(address: IPv4Address, opened: Iterable[IPv4Network]) -> bool:
    """Whether an address is one of the fixed denials, with the ranges the operator opened taken out."""
    return _holds(CLOSED, address) and not _holds(opened, address)


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


def _holds(networks: Iterable[IPv4Network], address: IPv4Address) -> bool:
    return any(address in network for network in networks)
