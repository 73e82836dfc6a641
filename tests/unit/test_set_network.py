"""A policy is in force whatever the guest does: a daemon that does not answer keeps no secret that was taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.fakes_network import FakeNetwork

from sandlot.engine.core.errors import GuestUnresponsive
from sandlot.engine.core.model import HeaderRule, Instance, Isolation, Machine, NetworkPolicy, Resources
from sandlot.engine.node.machine_files import BootRecord
from sandlot.engine.node.machine_table import LiveMachine, MachineTable
from sandlot.engine.node.machines import MachineFactory, Parts

RULES = (HeaderRule(domain="a.example", headers=(("X", "${e2b.secrets.token}"),)),)


class DeadDaemon:
    async def trust(self, address: str, token: str | None, authorities: str) -> None:
        raise GuestUnresponsive("the daemon does not answer")


async def test_a_guest_without_a_daemon_still_gets_its_policy(tmp_path: Path) -> None:
    network, table = FakeNetwork(), MachineTable(node="local", directory=tmp_path / "sandboxes")
    nothing: Any = None
    parts = Parts(runtimes={}, network=network, boot=nothing, envd=cast(Any, DeadDaemon()), checkpoints=nothing)
    factory = MachineFactory(table=table, parts=parts, scratch=tmp_path / "taken")
    await network.acquire("i1", NetworkPolicy(rules=RULES, secrets={"token": "old"}))
    machine = Machine(sandbox_id="i1", runtime="fake", isolation=Isolation.NONE, address="127.0.0.1")
    boot = BootRecord(guest="g", layers=(), boot_id="b", resources=Resources())
    table.put(LiveMachine(machine=machine, instance=Instance(machine_id="i1", runtime="fake"), token=None, boot=boot))
    await factory.set_network("i1", NetworkPolicy(rules=RULES, secrets={}))
    assert dict(network.policies["i1"].secrets) == {}
