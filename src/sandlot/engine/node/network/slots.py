"""Slots: gives every machine its place on the network, keeps fresh ones ready, and takes used ones away."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from sandlot.engine.core.errors import Conflict, EngineError, InvalidRequest, NoCapacity, NotFound, Unavailable
from sandlot.engine.core.model import NetworkPolicy, Slot
from sandlot.engine.core.network_policy import Rules, compile_rules
from sandlot.engine.node.network import block, kernel, rules
from sandlot.engine.node.network.authority import EgressAuthority
from sandlot.engine.node.network.claims import Claims
from sandlot.engine.node.network.relays import Relays
from sandlot.engine.node.network.resolver import Resolver
from sandlot.engine.node.network.slot_plan import SlotPlan, capacity
from sandlot.engine.node.network.sockets import listen
from sandlot.engine.node.processes import CommandFailed

log = logging.getLogger(__name__)

_OPEN = Rules()  # what a fresh slot's router enforces before anybody says more

_FIREWALLS_S = 30


@dataclass(slots=True)
class _Held:
    plan: SlotPlan
    rules: Rules


class Slots:
    """The `Network` of one host. What matters is in the kernel and in claim files; this object can be lost at any time."""

    def __init__(
        self,
        data_dir: Path,
        instance: str,
        range: IPv4Network,
        allow_private: tuple[IPv4Network, ...] = (),
        dns_servers: tuple[str, ...] = (),
        warm: int = 4,
        trusted: str | None = None,
        watches: bool = False,
    ) -> None:
        """`watches`: connections to web ports pass through the relays for the log's sake, whatever the policy.
        `trusted`: certificates (PEM) that servers may be signed by whose connections are opened, besides the host's own."""
        self._egress = EgressAuthority(data_dir / "egress", instance)
        self._data_dir, self._instance, self._pool, self._opened = data_dir, instance, range, allow_private
        self.relays = Relays(dns_servers, allow_private, range, self._egress.certify, trusted)
        self._resolver = Resolver(dns_servers, allow_private, range)
        self.on_flows: Callable[[str, Mapping[str, Any]], None] = lambda *_: None  # a machine, and what left it
        self.relays.on_flows = self._flowed
        self._owners: dict[int, str] = {}  # machines by the index of their slot, until nothing more is told of it
        self._watches = watches
        self._warm = warm
        self._claims = Claims(data_dir / "network" / "claims")
        self._block = range
        self._mtu = 1500
        self._ready: deque[SlotPlan] = deque()
        self._held: dict[str, _Held] = {}
        self._busy: set[int] = set()  # indices that are being made or removed, or are in use
        self._next = 0
        self._refilling: asyncio.Task[None] | None = None
        self._is_open = False
        self._firewalls_seen_at = 0.0

    def authorities(self, policy: NetworkPolicy) -> str | None:
        return self._egress.certificate if policy.rules else None

    @property
    def ready(self) -> int:
        """Slots that are made and wait for a sandbox."""
        return len(self._ready)

    async def open(self) -> None:
        self._claims.open()
        self.relays.open()
        self._block = await block.take(
            self._data_dir, self._instance, self._pool, keep=any(map(self._is_whole, self._claims.read()))
        )
        self._mtu = await kernel.uplink_mtu()
        await kernel.enable_forwarding()
        await kernel.load_host_rules(rules.host_rules(self._instance, self._block, self._pool, self._opened))
        await kernel.pass_foreign_firewalls(self._instance)
        self._firewalls_seen_at = time.monotonic()
        await self._repair()
        self._is_open = True
        await self._make_ready(self._warm - len(self._ready))

    async def close(self) -> None:
        self._is_open = False
        if self._refilling:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        self._ready.clear()
        self._held.clear()
        await self.relays.close()

    async def destroy(self) -> None:
        """Remove everything of this instance from the host: slots, rules, claims. Machines in them lose their network."""
        await self.close()
        for index, _ in self._claims.read().items():
            self._claims.drop(index)
        await kernel.remove([self._plan(index) for index in kernel.found(self._instance)])
        await kernel.drop_host_table(rules.host_table(self._instance))
        await kernel.forget_foreign_firewalls(self._instance)
        await block.give_back(self._data_dir, self._instance)

    async def acquire(self, machine_id: str, policy: NetworkPolicy) -> Slot:
        await self._check_proxy(policy)
        if machine_id in self._held or machine_id in self._claims.read().values():
            raise Conflict(f"sandbox {machine_id} has a network slot already; release it first")
        plan = await self._fresh()
        held = _Held(plan, _OPEN)
        try:
            if machine_id in self._held or not self._claims.add(plan.index, machine_id):
                raise Unavailable(
                    f"network slot {plan.index} is claimed by somebody else; restart the server to repair"
                )
            self._held[machine_id], self._owners[plan.index] = held, machine_id
            await self._enforce(held, policy)
        except BaseException:
            if self._held.get(machine_id) is held:
                del self._held[machine_id]
            await asyncio.shield(self._discard(plan))
            raise
        finally:
            self._refill()
        return plan.slot()

    async def adopt(self, machine_id: str, policy: NetworkPolicy) -> Slot:
        if machine_id in self._held:
            await self.apply(machine_id, policy)
            return self._held[machine_id].plan.slot()
        index = self._claimed_index(machine_id)
        if index is None or not self._is_whole(index):
            raise NotFound(f"sandbox {machine_id} has no network slot on this host")
        plan = self._plan(index)
        held = _Held(plan, _OPEN)
        await self.relays.serve(index, await listen(plan))
        try:
            await self._enforce(held, policy, known=False)
        except BaseException:
            await self.relays.release(index)
            raise
        self._held[machine_id], self._owners[index] = held, machine_id
        return plan.slot()

    async def apply(self, machine_id: str, policy: NetworkPolicy) -> None:
        held = self._held.get(machine_id)
        if held is None:
            raise NotFound(f"sandbox {machine_id} has no network slot on this host")
        await self._check_proxy(policy)
        await self._enforce(held, policy)

    async def release(self, machine_id: str) -> None:
        held = self._held.pop(machine_id, None)
        index = held.plan.index if held else self._claimed_index(machine_id)
        if index is not None:
            await asyncio.shield(self._discard(self._plan(index)))
            self._refill()

    async def claims(self) -> Mapping[str, Slot]:
        return {
            machine_id: self._plan(index).slot()
            for index, machine_id in self._claims.read().items()
            if self._is_whole(index)
        }

    def _flowed(self, index: int, flows: Mapping[str, Any]) -> None:
        if (machine_id := self._owners.get(index)) is not None:
            self.on_flows(machine_id, flows)

    async def _check_proxy(self, policy: NetworkPolicy) -> None:
        proxy = policy.egress_proxy
        if proxy is not None and not await self._resolver.addresses(proxy.host, _OPEN):
            raise InvalidRequest(
                f"egressProxy: {proxy.host} does not resolve, or leads to an address that is closed to sandboxes"
            )

    async def _enforce(self, held: _Held, policy: NetworkPolicy, *, known: bool = True) -> None:
        """Put a policy in force: first in the kernel, then in the relays, which also end what is no longer allowed."""
        wanted = replace(compile_rules(policy), watched=self._watches)
        if not known or wanted != held.rules:
            try:
                await kernel.load_router_rules(held.plan, rules.policy_rules(wanted))
            except CommandFailed as error:
                log.error("the rules of network slot %s could not be loaded: %s", held.plan.index, error)
                raise Unavailable("the network policy could not be put in force; the server's log says why") from error
        held.rules = wanted
        await self.relays.enforce(held.plan.index, wanted)

    async def _fresh(self) -> SlotPlan:
        while not self._ready:
            if self._refilling and not self._refilling.done():
                await asyncio.wait([self._refilling])
                if self._ready:
                    break
            await self._make_ready(1)
        return self._ready.popleft()

    async def _make_ready(self, count: int) -> None:
        if count <= 0:
            return
        plans = [self._plan(index) for index in self._reserve(count)]
        router_rules = [rules.router_rules(plan, self._pool, self._opened) for plan in plans]
        try:
            await kernel.make(plans, router_rules, self._mtu)
            for plan in plans:
                await self.relays.serve(plan.index, await listen(plan))
        except BaseException as error:
            for plan in plans:
                await self.relays.release(plan.index)
            await kernel.remove(plans)
            self._busy.difference_update(plan.index for plan in plans)
            if isinstance(error, CommandFailed):
                log.error("network slots could not be made: %s", error)
                raise Unavailable("network slots could not be made; the server's log says why") from error
            raise
        self._ready.extend(plans)

    def _reserve(self, count: int) -> list[int]:
        """Free indices, the longest unused first: an address should rest before it is somebody else's."""
        total = capacity(self._block)
        order = ((self._next + step) % total for step in range(total))
        chosen = [index for index in order if index not in self._busy][:count]
        if not chosen:
            raise NoCapacity(f"all {total} network slots of this server are in use; try again when a sandbox has ended")
        self._next = (chosen[-1] + 1) % total
        self._busy.update(chosen)
        return chosen

    async def _discard(self, plan: SlotPlan) -> None:
        """A used slot is removed, not cleaned: no connection, rule or neighbour of its former life can stay."""
        await self.relays.release(plan.index)
        self._owners.pop(plan.index, None)
        await kernel.remove([plan])
        self._claims.drop(plan.index)
        self._busy.discard(plan.index)

    def _refill(self) -> None:
        missing = self._warm - len(self._ready)
        if self._is_open and missing > 0 and (self._refilling is None or self._refilling.done()):
            self._refilling = asyncio.create_task(self._refill_now(), name="network slots")

    async def _refill_now(self) -> None:
        try:
            while (missing := self._warm - len(self._ready)) > 0:
                await self._make_ready(missing)
            if time.monotonic() - self._firewalls_seen_at > _FIREWALLS_S:  # Docker may have been started since
                await kernel.pass_foreign_firewalls(self._instance)
                self._firewalls_seen_at = time.monotonic()
        except NoCapacity:
            pass
        except EngineError as error:
            log.warning("network slots could not be made ahead of time: %s", error)

    async def _repair(self) -> None:
        """Bring host and claims in line: slots nobody claims go, claims without a slot go."""
        claimed = self._claims.read()
        for index in [index for index in claimed if not self._is_whole(index)]:
            log.warning("the network slot of sandbox %s is gone; its claim is dropped", claimed[index])
            self._claims.drop(index)
        kept = set(self._claims.read())
        ours = {plan.index for plan in self._ready} | {held.plan.index for held in self._held.values()}
        await kernel.remove([self._plan(index) for index in sorted(kernel.found(self._instance) - kept - ours)])
        self._busy = kept | ours

    def _claimed_index(self, machine_id: str) -> int | None:
        return next((index for index, holder in self._claims.read().items() if holder == machine_id), None)

    def _is_whole(self, index: int) -> bool:
        return kernel.is_whole(self._plan(index))

    def _plan(self, index: int) -> SlotPlan:
        return SlotPlan(self._instance, index, self._block)
