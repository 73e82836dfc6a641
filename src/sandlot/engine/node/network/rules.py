"""Packet filter rules as text: the guard of the host and the small rule set of each router."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network

from sandlot.addresses import CLOSED
from sandlot.engine.core.network_policy import Rules
from sandlot.engine.node.network.slot_plan import DNS_PORT, EGRESS_PORT, GUEST_ADDRESS, GUEST_GATEWAY, SlotPlan

NEWLINE = "\n"
MAX_CONNECTIONS = 4096  # of one slot at once: all share the host's connection table, and a full one stops the host
MAX_QUERIES_S = 500  # of one slot: more would only keep the relay busy


def host_table(instance: str) -> str:
    return f"sandlot_{instance}"


def host_rules(instance: str, block: IPv4Network, pool: IPv4Network, opened: Iterable[IPv4Network]) -> str:
    """The host's guard: from a slot nothing reaches the host itself, another slot, or a closed range.

    Chains are declared and flushed, not deleted, so that loading again changes nothing for connections that are open.
    `ct status dnat` catches ports that others (Docker, Kubernetes) publish on the host's addresses.
    """
    table, links = host_table(instance), f'"sl{instance}*"'
    return f"""
add table inet {table}
add set inet {table} opened {{ type ipv4_addr; flags interval; auto-merge; }}
add set inet {table} closed {{ type ipv4_addr; flags interval; auto-merge; }}
add chain inet {table} host_in {{ type filter hook input priority filter - 10; policy accept; }}
add chain inet {table} through {{ type filter hook forward priority filter - 10; policy accept; }}
add chain inet {table} outward {{ type nat hook postrouting priority srcnat + 10; policy accept; }}
flush chain inet {table} host_in
flush chain inet {table} through
flush chain inet {table} outward
flush set inet {table} opened
flush set inet {table} closed
{_elements(f"inet {table} opened", opened)}
{_elements(f"inet {table} closed", CLOSED)}
add rule inet {table} host_in iifname != {links} accept
add rule inet {table} host_in meta nfproto ipv4 ct state established,related accept
add rule inet {table} host_in drop
add rule inet {table} through oifname {links} meta nfproto ipv4 ct state established,related accept
add rule inet {table} through oifname {links} drop
add rule inet {table} through iifname != {links} accept
add rule inet {table} through meta nfproto ipv6 drop
add rule inet {table} through ip saddr != {block} drop
add rule inet {table} through ct status dnat drop
add rule inet {table} through ip daddr {pool} drop
add rule inet {table} through ip daddr @opened accept
add rule inet {table} through ip daddr @closed drop
add rule inet {table} outward oifname != {links} ip saddr {block} masquerade
"""


def router_rules(plan: SlotPlan, pool: IPv4Network, opened: Iterable[IPv4Network]) -> str:
    """The rule set of a fresh router, with an open policy.

    A connection that the host began (`ct direction reply` seen from the guest) always gets its answers. What the guest
    begins is judged packet by packet on the destination it first named, both ways, so that a new policy also ends
    connections which are already open.
    """
    return f"""
add table ip sandlot
add set ip sandlot opened {{ type ipv4_addr; flags interval; auto-merge; }}
add set ip sandlot closed {{ type ipv4_addr; flags interval; auto-merge; }}
add set ip sandlot allow {{ type ipv4_addr; flags interval; auto-merge; }}
add set ip sandlot deny {{ type ipv4_addr; flags interval; auto-merge; }}
{_elements("ip sandlot opened", opened)}
{_elements("ip sandlot closed", CLOSED)}
table ip sandlot {{
  chain refuse {{
    iifname "up" drop
    meta l4proto tcp reject with tcp reset
    reject with icmp type admin-prohibited
  }}
  chain decide {{
    ct original ip daddr @allow accept
    ct original ip daddr @deny jump refuse
    accept
  }}
  chain judge {{
    ct original ip daddr {pool} jump refuse
    ct original ip daddr @opened goto decide
    ct original ip daddr @closed jump refuse
    goto decide
  }}
  chain divert {{
  }}
  chain spoof {{
    type filter hook prerouting priority raw; policy accept;
    iifname "down" ip saddr != {GUEST_ADDRESS} drop
  }}
  chain translate_in {{
    type nat hook prerouting priority dstnat; policy accept;
    iifname "up" ip saddr {plan.host_address} ip daddr {plan.address} meta l4proto {{ tcp, udp }} dnat to {GUEST_ADDRESS}
    iifname "down" jump divert
  }}
  chain translate_out {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname "up" ip saddr {GUEST_ADDRESS} snat to {plan.address}
  }}
  chain through {{
    type filter hook forward priority filter; policy drop;
    ct state invalid drop
    tcp flags syn tcp option maxseg size set rt mtu
    iifname "down" oifname "up" ct direction reply ct state established accept
    iifname "down" oifname "up" ct state new ct count over {MAX_CONNECTIONS} jump refuse
    iifname "down" oifname "up" goto judge
    iifname "up" oifname "down" ct status dnat ct direction original accept
    iifname "up" oifname "down" ct state related accept
    iifname "up" oifname "down" ct state established goto judge
  }}
  chain local_in {{
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    ct state invalid drop
    iifname "down" udp dport {DNS_PORT} limit rate over {MAX_QUERIES_S}/second burst {MAX_QUERIES_S} packets drop
    iifname "down" ip daddr {GUEST_GATEWAY} udp dport {DNS_PORT} accept
    iifname "down" ip daddr {GUEST_GATEWAY} tcp dport {DNS_PORT} accept
    iifname "down" ip daddr {GUEST_GATEWAY} icmp type echo-request accept
    iifname "down" ip daddr {GUEST_GATEWAY} tcp dport {EGRESS_PORT} ct status dnat accept
    iifname "down" meta l4proto tcp reject with tcp reset
    iifname "down" reject with icmp type admin-prohibited
  }}
}}
"""


def policy_rules(rules: Rules) -> str:
    """The change from any policy to this one, as one transaction."""
    chain, divert = "add rule ip sandlot divert", []
    if rules.domains or rules.headers or rules.proxy or rules.watched:
        divert.append(f"{chain} ip daddr {GUEST_GATEWAY} return")
    if rules.headers:  # HTTP over QUIC would pass beside the rules; clients go on with TCP
        divert.append(f"{chain} udp dport 443 drop")
    if rules.proxy:
        divert.append(f"{chain} meta l4proto tcp redirect to :{EGRESS_PORT}")
    elif rules.headers or rules.watched:
        divert.append(f"{chain} tcp dport {{ 80, 443 }} redirect to :{EGRESS_PORT}")
    elif rules.domains:
        divert.append(f"{chain} ip daddr @allow return")
        divert.append(f"{chain} tcp dport {{ 80, 443 }} redirect to :{EGRESS_PORT}")
    return f"""
flush set ip sandlot allow
flush set ip sandlot deny
flush chain ip sandlot divert
{_elements("ip sandlot allow", rules.allow)}
{_elements("ip sandlot deny", rules.deny)}
{NEWLINE.join(divert)}
"""


def _elements(name: str, networks: Iterable[IPv4Network]) -> str:
    texts = ", ".join(map(str, networks))
    return f"add element {name} {{ {texts} }}" if texts else ""
