"""What a sandbox's network policy means: checks what callers ask for and turns it into rules that can be enforced."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Network, collapse_addresses, ip_network

from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.header_rules import checked, rule_for
from sandlot.engine.core.model import EgressProxy, HeaderRule, NetworkPolicy

ALL_TRAFFIC = "0.0.0.0/0"
MAX_ENTRIES = 1000
MAX_DNS_SERVERS = 10

_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_MASK = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A policy in the form in which it is enforced."""

    allow: tuple[IPv4Network, ...] = ()
    deny: tuple[IPv4Network, ...] = ()
    domains: tuple[str, ...] = ()  # lower case; "*" and "*.example.com" are patterns
    dns_servers: tuple[IPv4Address, ...] | None = None  # None: the server's own resolvers
    headers: tuple[HeaderRule, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)  # values of those that `headers` name
    proxy: EgressProxy | None = None
    watched: bool = False  # connections to web ports pass through the relay, which tells of them

    @property
    def denies_all(self) -> bool:
        """Nothing is reachable but what `allow` and `domains` name."""
        return _is_everything(self.deny) and not _is_everything(self.allow)

    def permits(self, address: IPv4Address) -> bool:
        """Whether traffic to this address leaves the sandbox, fixed denials aside."""
        return _holds(self.allow, address) or not _holds(self.deny, address)

    def permits_name(self, name: str) -> bool:
        """Whether a connection by this name is let through; only a policy that denies all is decided by name."""
        return not self.denies_all or any(matches(name, pattern) for pattern in self.domains)

    def header_rule(self, name: str) -> HeaderRule | None:
        return rule_for(name, self.headers)

    def resolves(self, name: str) -> bool:
        """Whether the sandbox may look this name up. A name that cannot be reached is not looked up: names carry data out."""
        return self.dns_servers != () and self.permits_name(name)


def matches(name: str, pattern: str) -> bool:
    """Whether a host name is meant by a pattern: the name itself, `*`, or `*.suffix` (not the bare suffix)."""
    name = name.lower().removesuffix(".")
    if not name or name.startswith("."):
        return False
    if pattern == "*":
        return True
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern


def compile_rules(policy: NetworkPolicy) -> Rules:
    """Turn a validated policy into rules."""
    deny = (*policy.deny_out, ALL_TRAFFIC) if policy.allow_internet is False else policy.deny_out
    allowed = [(_network(entry), entry) for entry in policy.allow_out]
    return Rules(
        allow=_merged(network for network, _ in allowed),
        deny=_merged(_network(entry) for entry in deny),
        domains=tuple(dict.fromkeys(entry.lower().removesuffix(".") for network, entry in allowed if network is None)),
        dns_servers=None if policy.dns_servers is None else tuple(IPv4Address(text) for text in policy.dns_servers),
        headers=policy.rules,
        secrets=policy.secrets,
        proxy=policy.egress_proxy,
    )


def validate(
    *,
    allow_out: Sequence[str] = (),
    deny_out: Sequence[str] = (),
    allow_internet: bool | None = None,
    allow_public_traffic: bool = True,
    mask_request_host: str | None = None,
    https_ports: Sequence[int] = (),
    dns_servers: Sequence[str] | None = None,
    rules: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
    egress_proxy: EgressProxy | None = None,
) -> NetworkPolicy:
    """A policy from what a caller asks for. Raises `InvalidRequest`, naming the entry that is wrong and what would be right."""
    _check_egress(allow_out, deny_out, allow_internet)
    if mask_request_host is not None:
        _check_mask(mask_request_host)
    for port in https_ports:
        if not 1 <= port <= 65535:
            raise InvalidRequest(f"httpsPorts: {port} is not a port; use numbers from 1 to 65535")
    if dns_servers is not None:
        _check_dns_servers(dns_servers)
    return NetworkPolicy(
        allow_out=tuple(allow_out),
        deny_out=tuple(deny_out),
        allow_internet=allow_internet,
        allow_public_traffic=allow_public_traffic,
        mask_request_host=mask_request_host,
        https_ports=tuple(https_ports),
        dns_servers=None if dns_servers is None else tuple(dns_servers),
        rules=checked(rules or {}),
        egress_proxy=egress_proxy,
    )


def _check_egress(allow_out: Sequence[str], deny_out: Sequence[str], allow_internet: bool | None) -> None:
    for name, entries in (("allowOut", allow_out), ("denyOut", deny_out)):
        if len(entries) > MAX_ENTRIES:
            raise InvalidRequest(f"{name} has {len(entries)} entries; at most {MAX_ENTRIES} are allowed")
    for entry in deny_out:
        if not _is_address(entry):
            raise InvalidRequest(f"denyOut: {_shown(entry)} is not an IP address or CIDR; domains can only be allowed")
        _check_specified("denyOut", entry)
    domains = [entry for entry in allow_out if not _is_address(entry)]
    for entry in allow_out:
        if entry not in domains:
            _check_specified("allowOut", entry)
        elif not _is_domain(entry):
            raise InvalidRequest(
                f"allowOut: {_shown(entry)} is not an IP address, a CIDR, a domain or a wildcard like *.example.com"
            )
    if domains and ALL_TRAFFIC not in deny_out and allow_internet is not False:
        raise InvalidRequest(
            f"allowOut contains domains ({_shown(domains[0])}), which only makes sense when everything else is denied: "
            f"add {ALL_TRAFFIC} (ALL_TRAFFIC) to denyOut"
        )


def _check_specified(field: str, entry: str) -> None:
    network = ip_network(entry, strict=False)
    if entry != ALL_TRAFFIC and int(ip_network(entry.partition("/")[0]).network_address) == 0:
        raise InvalidRequest(
            f"{field}: {_shown(entry)} is the unspecified address; use {ALL_TRAFFIC} for all traffic"
            if network.version == 4
            else f"{field}: {_shown(entry)} is the unspecified address"
        )


def _check_mask(text: str) -> None:
    if not text.isascii():
        raise InvalidRequest(f"maskRequestHost: {_shown(text)} is not ASCII; use ASCII characters only")
    match = _MASK.fullmatch(text.replace("${PORT}", "8080"))
    port = match["port"] if match else None
    if not match or len(text) > 255 or (port and not 1 <= int(port) <= 65535):
        raise InvalidRequest(
            f"maskRequestHost: {_shown(text)} is not a host; use a name like app.example.com, with :8080 or :${{PORT}} if needed"
        )


def _check_dns_servers(servers: Sequence[str]) -> None:
    if len(servers) > MAX_DNS_SERVERS:
        raise InvalidRequest(f"dnsServers has {len(servers)} entries; at most {MAX_DNS_SERVERS} are allowed")
    for server in servers:
        try:
            IPv4Address(server)
        except ValueError as error:
            raise InvalidRequest(f"dnsServers: {_shown(server)} is not an IPv4 address") from error


def _is_address(entry: str) -> bool:
    try:
        ip_network(entry, strict=False)
    except ValueError:
        return False
    return bool(re.fullmatch(r"[0-9A-Fa-f:.]+(/\d{1,3})?", entry))  # no netmasks, no scopes


def _is_domain(entry: str) -> bool:
    name = entry.lower().removesuffix(".")
    if name == "*":
        return True
    labels = name.removeprefix("*.").split(".")
    return len(name) <= 253 and all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()


def _network(entry: str) -> IPv4Network | IPv6Network | None:
    return ip_network(entry, strict=False) if _is_address(entry) else None


def _merged(networks: Iterable[IPv4Network | IPv6Network | None]) -> tuple[IPv4Network, ...]:
    """IPv6 is left out: there is no IPv6 in a sandbox, so it is denied whatever a policy says."""
    return tuple(collapse_addresses(network for network in networks if isinstance(network, IPv4Network)))


def _is_everything(networks: Sequence[IPv4Network]) -> bool:
    return any(network.prefixlen == 0 for network in networks)


def _holds(networks: Iterable[IPv4Network], address: IPv4Address) -> bool:
    return any(address in network for network in networks)


def _shown(entry: str) -> str:
    return repr(entry if len(entry) <= 100 else entry[:100] + "…")
