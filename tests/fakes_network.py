"""A network without namespaces: keeps the promises of the `Network` port in memory, for tests of what stands on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandlot.engine.core.errors import Conflict, NoCapacity, NotFound
from sandlot.engine.core.model import NetworkPolicy, Slot


@dataclass
class FakeHost:
    """What survives a restart of the server."""

    claims: dict[str, Slot] = field(default_factory=dict)


class FakeNetwork:
    """`policies` holds what is in force for slots that this object serves."""

    def __init__(self, host: FakeHost | None = None, capacity: int = 512) -> None:
        self.host = host or FakeHost()
        self.policies: dict[str, NetworkPolicy] = {}
        self._capacity = capacity

    async def open(self) -> None: ...

    async def close(self) -> None:
        self.policies.clear()

    async def destroy(self) -> None:
        self.policies.clear()
        self.host.claims.clear()

    async def acquire(self, machine_id: str, policy: NetworkPolicy) -> Slot:
        if machine_id in self.host.claims:
            raise Conflict(f"sandbox {machine_id} has a network slot already")
        taken = {slot.index for slot in self.host.claims.values()}
        index = next((index for index in range(self._capacity) if index not in taken), None)
        if index is None:
            raise NoCapacity("all network slots are in use")
        slot = Slot(
            index=index,
            netns=Path(f"/nowhere/{index}"),
            address=f"127.1.{index >> 8}.{(index & 255) + 1}",
            guest_address="169.254.0.21",
            guest_gateway="169.254.0.22",
        )
        self.host.claims[machine_id] = slot
        self.policies[machine_id] = policy
        return slot

    def authorities(self, policy: NetworkPolicy) -> str | None:
        return "an authority" if policy.rules else None

    async def adopt(self, machine_id: str, policy: NetworkPolicy) -> Slot:
        if machine_id not in self.host.claims:
            raise NotFound(f"sandbox {machine_id} has no network slot")
        self.policies[machine_id] = policy
        return self.host.claims[machine_id]

    async def apply(self, machine_id: str, policy: NetworkPolicy) -> None:
        if machine_id not in self.policies:
            raise NotFound(f"sandbox {machine_id} has no network slot")
        self.policies[machine_id] = policy

    async def release(self, machine_id: str) -> None:
        self.host.claims.pop(machine_id, None)
        self.policies.pop(machine_id, None)

    async def claims(self) -> Mapping[str, Slot]:
        return dict(self.host.claims)
