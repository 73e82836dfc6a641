"""The network of a host: slots for machines, with their policy in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sandlot.engine.core.model import NetworkPolicy, Slot


class Network(Protocol):
    """Gives machines a place on the network and enforces their policy there."""

    async def open(self) -> None:
        """Prepare the host (forwarding, guard rules, first slots). Safe to call again after a crash."""

    async def close(self) -> None:
        """End what lives in this process (relays); slots and rules stay for running machines."""

    async def acquire(self, machine_id: str, policy: NetworkPolicy) -> Slot:
        """Claim a free slot and put the policy in force before returning. Raises `NoCapacity`."""

    async def adopt(self, machine_id: str, policy: NetworkPolicy) -> Slot:
        """Take over a claim made by an earlier process: bring relays back. Raises `NotFound`."""

    async def apply(self, machine_id: str, policy: NetworkPolicy) -> None:
        """Replace the policy of a claimed slot, without a moment in which neither is in force."""

    async def release(self, machine_id: str) -> None:
        """Give the slot back, clean. Idempotent."""

    def authorities(self, policy: NetworkPolicy) -> str | None:
        """Certificates (PEM) that a guest with this policy has to trust, because some of its connections are opened."""

    async def claims(self) -> Mapping[str, Slot]:
        """Slots that are claimed, by sandbox id, found by looking at the host."""
