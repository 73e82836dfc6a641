"""The network of a sandbox: its policy, and the slot of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRule:
    """Headers that requests to a domain leave with, whatever the sandbox said under the same names.

    A value may name secrets: `${e2b.secrets.NAME}`. A name that begins with `SECRET_PLACEHOLDER_` is no header: wherever a
    header of such a request has it, the value takes its place.
    """

    domain: str  # lower case; a name, or `*.suffix`
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressProxy:
    """A SOCKS5 proxy that everything leaves through which a sandbox sends by TCP."""

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    use_tls: bool = False
    server_name: str | None = None  # the name in its certificate; None: `host`
    ca_cert: str | None = field(default=None, repr=False)  # PEM; None: what this host trusts


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
    rules: tuple[HeaderRule, ...] = ()
    egress_proxy: EgressProxy | None = None
    # Values of the secrets that the rules name. Only a node is told them: in rows they are not.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One machine's place on the network: two namespaces, and an address that the node proxy dials."""

    index: int
    netns: Path  # the sandbox's namespace, as a path for the runtime
    address: str  # unique on this host; the router translates it
    guest_address: str  # the same in every slot, so that a checkpoint fits any slot
    guest_gateway: str
    guest_prefix: int = 30
