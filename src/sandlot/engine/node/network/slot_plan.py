"""Names and addresses of slots: everything about a slot that follows from its instance, its index and its block."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from sandlot.engine.core.model import Slot

# E2B's own guest addresses: what works with them there works here, and they are nobody's destination.
GUEST_ADDRESS = IPv4Address("169.254.0.21")
GUEST_GATEWAY = IPv4Address("169.254.0.22")
GUEST_PREFIX = 30
GUEST_MAC = "02:5a:1d:00:00:02"
GATEWAY_MAC = "02:5a:1d:00:00:01"
PINS = Path("/run/netns")
BLOCK_PREFIX = 22  # 512 slots of two addresses each
DNS_PORT = 53
EGRESS_PORT = 15080  # where the router sends connections that are decided by name


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """One slot's names and addresses. The host's end has the even address of a pair, the router's end the odd one."""

    instance: str
    index: int
    block: IPv4Network

    @property
    def router(self) -> str:
        return f"sl-{self.instance}-{self.index}r"

    @property
    def sandbox(self) -> str:
        return f"sl-{self.instance}-{self.index}s"

    @property
    def link(self) -> str:
        return f"sl{self.instance}{self.index}"

    @property
    def host_address(self) -> IPv4Address:
        return self.block[2 * self.index]

    @property
    def address(self) -> IPv4Address:
        return self.block[2 * self.index + 1]

    @property
    def host_mac(self) -> str:
        return self._mac(0)

    @property
    def router_mac(self) -> str:
        return self._mac(1)

    def _mac(self, end: int) -> str:
        """Fixed by the index, so that no neighbour table holds an old one; no two instances share a wire."""
        return f"02:5a:{self.index >> 8:02x}:{self.index & 255:02x}:01:{end:02x}"

    def slot(self) -> Slot:
        return Slot(
            index=self.index,
            netns=PINS / self.sandbox,
            address=str(self.address),
            guest_address=str(GUEST_ADDRESS),
            guest_gateway=str(GUEST_GATEWAY),
            guest_prefix=GUEST_PREFIX,
        )


def capacity(block: IPv4Network) -> int:
    return block.num_addresses // 2


def index_of(instance: str, name: str) -> int | None:
    """The index that a namespace's or link's name holds; None if it is not one of this instance."""
    match = re.fullmatch(rf"(?:sl-{instance}-(\d+)[rs]|sl{instance}(\d+))", name)
    return int(match[1] or match[2]) if match else None
