"""Slots in the kernel: makes, finds and removes namespaces and links, and loads packet rules, by running `ip` and `nft`.

Everything made here is pinned in the host's own mount namespace: it outlives the server.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.node import processes
from sandlot.engine.node.network import slot_plan
from sandlot.engine.node.network.slot_plan import SlotPlan

_ETHERNET_MTU = 1500
T = TypeVar("T")


async def make(plans: Sequence[SlotPlan], router_rules: Sequence[str], mtu: int) -> None:
    """Make whole slots, all or nothing."""
    script = _wiring(plans, mtu) + "".join(
        _router_setup(plan, rules) + _sandbox_setup(plan, mtu) for plan, rules in zip(plans, router_rules, strict=True)
    )
    try:
        await _uninterrupted(_shell(script))
        for plan in plans:
            _check_visible(plan)
    except BaseException:
        await remove(plans)
        raise


async def remove(plans: Sequence[SlotPlan]) -> None:
    """Remove slots, or what is left of them. Removing the host's end of the link first cuts the slot off at once."""
    if not plans:
        return
    commands = [f"link del {plan.link}" for plan in plans]
    commands += [f"netns del {name}" for plan in plans for name in (plan.router, plan.sandbox)]
    await _uninterrupted(
        processes.run("ip", "-force", "-batch", "-", input=_lines(commands), check=False, in_host_mounts=True)
    )
    left = found(plans[0].instance) & {plan.index for plan in plans}
    for plan in plans:
        if plan.index in left:
            raise Unavailable(
                f"network slot {plan.index} could not be removed; `ip netns` and `ip link` show {plan.router} or {plan.link}"
            )


def found(instance: str) -> set[int]:
    """Indices of slots of which anything exists on this host."""
    names = [name for _, name in socket.if_nameindex()]
    if slot_plan.PINS.is_dir():
        names += [path.name for path in slot_plan.PINS.iterdir()]
    return {index for name in names if (index := slot_plan.index_of(instance, name)) is not None}


def is_whole(plan: SlotPlan) -> bool:
    """Whether both namespaces and the host's link of a slot exist."""
    return (
        _is_namespace(slot_plan.PINS / plan.router)
        and _is_namespace(slot_plan.PINS / plan.sandbox)
        and plan.link in {name for _, name in socket.if_nameindex()}
    )


async def load_router_rules(plan: SlotPlan, rules: str) -> None:
    await processes.run("nsenter", f"--net={slot_plan.PINS / plan.router}", "nft", "-f", "-", input=rules.encode())


async def load_host_rules(rules: str) -> None:
    await processes.run("nft", "-f", "-", input=rules.encode())


async def drop_host_table(table: str) -> None:
    await processes.run("nft", "-f", "-", input=f"add table inet {table}\ndelete table inet {table}\n".encode())


async def enable_forwarding() -> None:
    await _shell("[ $(cat /proc/sys/net/ipv4/ip_forward) = 1 ] || echo 1 > /proc/sys/net/ipv4/ip_forward\n")


async def uplink_mtu() -> int:
    """The MTU that packets to the outside can have: a slot with a larger one would depend on path MTU discovery."""
    routes = json.loads((await processes.run("ip", "-4", "-json", "route", "show", "default")).stdout or b"[]")
    links = json.loads((await processes.run("ip", "-json", "link", "show")).stdout or b"[]")
    devices = {route.get("dev") for route in routes}
    return min((_ETHERNET_MTU, *(int(link["mtu"]) for link in links if link["ifname"] in devices)))


async def pass_foreign_firewalls(instance: str) -> None:
    """Where something else (Docker) drops what it does not know in FORWARD, let this instance's links through.

    An accept in our own table cannot do that: a packet must pass every table.
    """
    listed = await _iptables("-S", "FORWARD")
    if listed is None or "-P FORWARD DROP" not in listed:
        return
    for rule in _passes(instance):
        if await _iptables("-C", "FORWARD", *rule) is None:
            await _iptables("-I", "FORWARD", *rule)


async def forget_foreign_firewalls(instance: str) -> None:
    for rule in _passes(instance):
        while (
            await _iptables("-C", "FORWARD", *rule) is not None and await _iptables("-D", "FORWARD", *rule) is not None
        ):
            pass


def _passes(instance: str) -> list[tuple[str, ...]]:
    links = f"sl{instance}+"
    established = ("-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED")
    return [("-i", links, "-j", "ACCEPT"), ("-o", links, *established, "-j", "ACCEPT")]


async def _iptables(*args: str) -> str | None:
    """What iptables says; None if it is not installed or says no."""
    try:
        result = await processes.run("iptables", "-w", "5", *args, check=False)
    except Unavailable:
        return None
    return result.stdout.decode(errors="replace") if result.status == 0 else None


def _wiring(plans: Sequence[SlotPlan], mtu: int) -> str:
    """Namespaces and links, in one run of `ip`."""
    commands = []
    for plan in plans:
        commands += [
            f"netns add {plan.router}",
            f"netns add {plan.sandbox}",
            f"link add name {plan.link} address {plan.host_mac} mtu {mtu} type veth "
            f"peer name up address {plan.router_mac} mtu {mtu} netns {plan.router}",
            f"link set dev {plan.link} addrgenmode none",
            f"addr add {plan.host_address}/31 dev {plan.link}",
            f"link set dev {plan.link} up",
        ]
    return f"ip -batch - <<'WIRING'\n{_lines(commands).decode()}WIRING\n"


def _router_setup(plan: SlotPlan, rules: str) -> str:
    """The reverse path filter also keeps a guest from filling the neighbour table, which all namespaces share."""
    commands = [
        "link set dev lo up",
        f"addr add {plan.address}/31 dev up",
        "link set dev up up",
        f"addr add {slot_plan.GUEST_GATEWAY}/{slot_plan.GUEST_PREFIX} dev down",
        "link set dev down up",
        f"route add default via {plan.host_address} dev up",
        f"neigh replace {slot_plan.GUEST_ADDRESS} lladdr {slot_plan.GUEST_MAC} dev down nud permanent",
    ]
    wire = (
        f"link add name down address {slot_plan.GATEWAY_MAC} type veth "
        f"peer name eth0 address {slot_plan.GUEST_MAC} netns {plan.sandbox}"
    )
    return f"""nsenter --net={slot_plan.PINS / plan.router} sh -eu <<'ROUTER'
ip {wire}
echo 1 > /proc/sys/net/ipv4/ip_forward
echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter
{_NO_IPV6}
nft -f - <<'RULES'
{rules}
RULES
ip -batch - <<'COMMANDS'
{_lines(commands).decode()}COMMANDS
ROUTER
"""


def _sandbox_setup(plan: SlotPlan, mtu: int) -> str:
    commands = [
        "link set dev lo up",
        f"link set dev eth0 mtu {mtu}",
        f"addr add {slot_plan.GUEST_ADDRESS}/{slot_plan.GUEST_PREFIX} dev eth0",
        "link set dev eth0 up",
        f"route add default via {slot_plan.GUEST_GATEWAY} dev eth0",
    ]
    return f"""nsenter --net={slot_plan.PINS / plan.sandbox} sh -eu <<'SANDBOX'
{_NO_IPV6}
{_IPV6_INSIDE}
echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range
echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
ip -batch - <<'COMMANDS'
{_lines(commands).decode()}COMMANDS
SANDBOX
"""


# A kernel without IPv6 has nothing to switch off.
_NO_IPV6 = """if [ -d /proc/sys/net/ipv6 ]; then
  echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
  echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
fi"""
# `localhost` is also ::1 in every image, and programs that try both take the failure of the last for the reason.
_IPV6_INSIDE = "[ ! -e /proc/sys/net/ipv6/conf/lo ] || echo 0 > /proc/sys/net/ipv6/conf/lo/disable_ipv6"


def _check_visible(plan: SlotPlan) -> None:
    if not _is_namespace(slot_plan.PINS / plan.sandbox):
        raise Unavailable(
            f"the network namespace {plan.sandbox} was made on the host and cannot be seen by the server: "
            f"{slot_plan.PINS} must be a shared mount before the server starts"
        )


def _is_namespace(path: Path) -> bool:
    """A pin is a mount; the bare file of one that is gone does not count."""
    try:
        return path.stat().st_dev == Path("/proc/self/ns/net").stat().st_dev
    except OSError:
        return False


def _lines(commands: Sequence[str]) -> bytes:
    return "".join(f"{command}\n" for command in commands).encode()


async def _uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Let work end before a cancellation goes on: a script that is killed half-way leaves a child that still makes things."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen, and less important than the cancellation
        raise


async def _shell(script: str) -> None:
    await processes.run("sh", "-eu", input=script.encode(), in_host_mounts=True, timeout_s=60)
