"""The network of a sandbox: its policy, and the slot of its machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicy:
    """What a sandbox may reach, and who may reach it. Values were validated at the door.

    Order of decision for outgoing traffic: the operator's fixed denials (host, other sandboxes, private
    ranges that were not opened by a setting), then `allow_out`, then `deny_out`, then yes.
    """

    allow_out: tuple[str, ...] = ()  # IPv4, CIDR, domain or *.domain
    deny_out: tuple[str, ...] = ()  # IPv4 or CIDR
    allow_internet: bool | None = None  # False is the same as denying 0.0.0.0/0; None: not said
    allow_public_traffic: bool = True
    mask_request_host: str | None = None
    https_ports: tuple[int, ...] = ()
    dns_servers: tuple[str, ...] | None = None  # None: the host's resolvers; (): none at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One machine's place on the network: two namespaces, and an address that the node proxy dials."""

    index: int
    netns: Path  # the sandbox's namespace, as a path for the runtime
    address: str  # unique on this host; the router translates it
    guest_address: str  # the same in every slot, so that a checkpoint fits any slot
    guest_gateway: str
    guest_prefix: int = 30
