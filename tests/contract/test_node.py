"""What every node promises, checked on the real local node: directly, and through a wire that serialises everything."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import AsyncIterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.contract.node_host import HostOfNode, OpenNode, RemoteNode

from sandlot.engine.core.errors import InvalidRequest, MachineFailed, NotFound, SandboxLeft, StateUnusable
from sandlot.engine.core.model import (
    LogEntry,
    Machine,
    NetworkPolicy,
    NewMachine,
    PauseMode,
    ProxyTarget,
    Resources,
    RunningMachine,
    Template,
)
from sandlot.engine.core.ports import Node, NodeHost, NodeMachines, NodeSnapshots
from sandlot.engine.node.envd.client import Identity

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TEMPLATE = Template(
    id="t1",
    team_id=None,
    name="base",
    layers=("l1",),
    build_id="b1",
    created_at=NOW,
    updated_at=NOW,
    env={"A": "1"},
)
NEW = NewMachine(
    sandbox_id="i1",
    runtime="fake",
    template=TEMPLATE,
    resources=Resources(memory_mb=256),
    network=NetworkPolicy(allow_out=("example.com",), deny_out=("0.0.0.0/0",)),
    envd_token="secret",
    env_vars={"B": "2"},
)
RUNNING = RunningMachine(sandbox_id="i1", runtime="fake", network=NEW.network, envd_token="secret")


@pytest.fixture
def host(tmp_path: Path) -> HostOfNode:
    return HostOfNode(tmp_path)


@pytest.fixture(params=["direct", "serialised"])
async def opened(request: pytest.FixtureRequest, host: HostOfNode) -> AsyncIterator[tuple[Node, OpenNode]]:
    async with host.node() as made:
        yield (made.local if request.param == "direct" else RemoteNode(made.local)), made


@pytest.fixture
def node(opened: tuple[Node, OpenNode]) -> Node:
    return opened[0]


@pytest.fixture
def inside(opened: tuple[Node, OpenNode]) -> OpenNode:
    return opened[1]


async def test_a_started_machine_has_its_identity_its_policy_and_its_resources(
    node: Node, inside: OpenNode, host: HostOfNode
) -> None:
    machine = await node.machines.start(NEW)
    assert machine.sandbox_id == "i1" and machine.address and list(await node.machines.list()) == [machine]
    (identity,) = host.envd.identities
    assert identity.sandbox_id == "i1" and identity.access_token == "secret" and identity.env_vars == {"B": "2"}
    assert inside.network.policies["i1"] == NEW.network
    assert host.machines.machines["i1"].spec.resources == NEW.resources


async def test_a_start_that_fails_leaves_nothing(node: Node, host: HostOfNode) -> None:
    with pytest.raises(MachineFailed):
        await node.machines.start(replace(NEW, template=replace(TEMPLATE, layers=("missing",))))
    with pytest.raises(InvalidRequest, match="runtime"):
        await node.machines.start(replace(NEW, runtime="other"))
    assert not host.machines.machines and not host.network.claims
    assert not list((host.directory / "sandboxes").iterdir())


async def test_stopping_frees_everything_and_may_be_repeated(node: Node, host: HostOfNode) -> None:
    await node.machines.start(NEW)
    await node.machines.stop("i1")
    await node.machines.stop("i1")
    assert not host.machines.machines and not host.network.claims and not await node.machines.list()


async def test_a_policy_is_replaced_and_usage_is_measured(node: Node, inside: OpenNode) -> None:
    await node.machines.start(NEW)
    await node.machines.set_network("i1", NetworkPolicy(allow_internet=False))
    assert inside.network.policies["i1"].allow_internet is False
    usage = await node.machines.usage("i1")
    assert usage.mem_total == 256 << 20 and usage.at.tzinfo is not None
    with pytest.raises(NotFound):
        await node.machines.usage("i2")


async def test_logs_are_there_while_it_runs_and_after_its_end(node: Node, host: HostOfNode) -> None:
    host.envd.entries = [LogEntry(at=datetime.now(UTC), message="hello", fields={"k": "v"})]
    await node.machines.start(NEW)
    assert [entry.message for entry in await node.machines.logs("i1")] == ["hello"]
    await node.machines.stop("i1")
    assert [entry.fields for entry in await node.machines.logs("i1")] == [{"k": "v"}]
    assert not await node.machines.logs("i2")


async def test_another_process_adopts_what_runs(host: HostOfNode) -> None:
    async with host.node() as first:
        machine = await first.local.machines.start(NEW)
    async with host.node() as second:
        node = RemoteNode(second.local)
        await node.machines.adopt(RUNNING)
        assert list(await node.machines.list()) == [machine] and second.network.policies["i1"] == NEW.network
        with pytest.raises(NotFound):
            await node.machines.adopt(replace(RUNNING, sandbox_id="i2"))


# Checkpoints


async def test_a_paused_machine_comes_back_and_its_checkpoint_goes(node: Node, host: HostOfNode) -> None:
    await node.machines.start(NEW)
    assert await node.snapshots.pause("i1", memory=True) is PauseMode.FULL
    assert not host.machines.machines and set(await node.snapshots.list()) == {"i1"}
    machine = await node.snapshots.resume(NEW)
    assert isinstance(machine, Machine) and not await node.snapshots.list()


async def test_a_capture_is_kept_under_its_name_and_begins_other_machines(node: Node) -> None:
    await node.machines.start(NEW)
    saved = await node.snapshots.capture("i1", "snp1", memory=True)
    assert saved.name == "snp1" and saved.layers == ("l1",) and saved.created_at.tzinfo is not None
    assert (await node.snapshots.list())["snp1"] == saved
    await node.machines.start(replace(NEW, sandbox_id="i2", checkpoint="snp1"))
    await node.snapshots.discard("snp1")
    await node.snapshots.discard("snp1")
    assert {machine.sandbox_id for machine in await node.machines.list()} == {"i1", "i2"}


async def test_resuming_what_was_never_paused_is_an_error_and_leaves_nothing(node: Node, host: HostOfNode) -> None:
    with pytest.raises(StateUnusable):
        await node.snapshots.resume(NEW)
    assert not host.network.claims


async def test_recovery_says_whether_it_runs_is_paused_or_gone(node: Node) -> None:
    with pytest.raises(NotFound):
        await node.snapshots.recover(NEW)
    machine = await node.machines.start(NEW)
    assert await node.snapshots.recover(NEW) == machine
    await node.snapshots.pause("i1", memory=False)
    assert await node.snapshots.recover(NEW) is PauseMode.FILESYSTEM


# The host


async def test_a_machine_that_ends_by_itself_is_an_event_behind_the_cursor(node: Node, inside: OpenNode) -> None:
    cursor = (await node.host.events("", wait_s=0)).cursor
    await node.machines.start(NEW)
    waiting = asyncio.create_task(node.host.events(cursor, wait_s=10))
    await asyncio.sleep(0.01)
    inside.runtime.end("i1", "out of memory")
    page = await waiting
    assert [(exit.sandbox_id, exit.exit.reason) for exit in page.exits] == [("i1", "out of memory")]
    assert page.status.name == "n1" and not page.is_reset and not (await node.host.events(page.cursor, wait_s=0)).exits
    assert (await node.host.events(cursor, wait_s=0)).exits == page.exits, "a page can be asked for again"


async def test_a_cursor_of_an_earlier_process_is_told_that_events_may_be_missing(node: Node) -> None:
    assert (await node.host.events("other:3", wait_s=0)).is_reset


async def test_the_status_says_what_it_has_and_counts(node: Node) -> None:
    await node.machines.start(NEW)
    await node.snapshots.capture("i1", "snp1", memory=True)
    status = await node.host.status()
    assert status.name == "n1" and status.machines == 1 and status.runtimes == ("fake",)
    assert "l1" in status.layers and "snp1" in status.checkpoints and status.memory_mb > 0


async def test_a_sweep_frees_what_is_not_kept(node: Node, host: HostOfNode) -> None:
    for sandbox_id in ("i1", "i2"):
        await node.machines.start(replace(NEW, sandbox_id=sandbox_id))
    assert list(await node.host.sweep(["i1"])) == ["i2"]
    assert set(host.machines.machines) == {"i1"}
    assert await node.host.layers_in_use() == {"l1"}
    await node.host.forget_template("t1")


async def test_what_left_its_machines_is_told_once(node: Node, inside: OpenNode) -> None:
    await node.machines.start(replace(NEW, sandbox_id="i1"))
    row = ("a.example", 443, True, "a.example", None, ["token"], 2, 10, 20)
    inside.parts.egress.note("i1", {"rows": [row], "left_out": 3})
    told = await node.host.egress()
    (entry,) = told.entries
    assert (entry.sandbox_id, entry.host, entry.connections, entry.secrets) == ("i1", "a.example", 2, ("token",))
    assert told.left_out == {"i1": 3}
    again = await node.host.egress()
    assert not again.entries and not again.left_out


async def test_nothing_is_forwarded_to_a_machine_that_is_not_there(node: Node) -> None:
    async def receive() -> typing.NoReturn:
        raise AssertionError("nothing of the request is used")

    async def send(_: object) -> typing.NoReturn:
        raise AssertionError("nothing is answered")

    with pytest.raises(SandboxLeft):
        await node.proxy.forward(ProxyTarget(sandbox_id="i9", port=80), {"type": "http"}, receive, send)


# The warm pool: the node picks


async def test_a_start_leases_a_warm_machine_under_the_name_of_its_sandbox(host: HostOfNode) -> None:
    async with host.node(pool_size=1) as opened:
        node, pool = RemoteNode(opened.local), opened.parts.warm_pool
        await node.machines.start(NEW)
        while not sum(pool.numbers()[0].values()):
            await asyncio.sleep(0.11)
            await pool.step()
        (warm,) = set(host.machines.machines) - {"i1"}
        assert [machine.sandbox_id for machine in await node.machines.list()] == ["i1"], "a warm one is nobody's"
        assert not await node.host.sweep(["i1"]), "and is not swept away"
        machine = await node.machines.start(replace(NEW, sandbox_id="i2", network=NetworkPolicy()))
        assert machine.sandbox_id == "i2" and not host.machines.machines[warm].frozen
        assert host.envd.identities[-1].sandbox_id == "i2" and opened.network.policies[warm] == NetworkPolicy()
        assert {each.sandbox_id for each in await node.machines.list()} == {"i1", "i2"}
    async with host.node() as later:  # the next process finds it by its sandbox's name
        await later.local.machines.adopt(replace(RUNNING, sandbox_id="i2"))
        assert {each.sandbox_id for each in await later.local.machines.list()} == {"i1", "i2"}
        assert list(await later.local.host.sweep(["i1"])) == ["i2"]
        assert set(host.machines.machines) == {"i1"} and set(host.network.claims) == {"i1"}


async def test_the_end_of_a_warm_machine_that_could_not_be_leased_is_not_the_end_of_the_sandbox(
    host: HostOfNode,
) -> None:
    async with host.node(pool_size=1) as opened:
        node, pool = opened.local, opened.parts.warm_pool
        cursor = (await node.host.events("", wait_s=0)).cursor
        await node.machines.start(NEW)
        while not sum(pool.numbers()[0].values()):
            await asyncio.sleep(0.11)
            await pool.step()
        (warm,) = set(host.machines.machines) - {"i1"}
        init = host.envd.init

        async def dies(address: str, identity: Identity, **options: Any) -> str:
            if warm in host.machines.machines:
                opened.runtime.end(warm, "killed")
                await asyncio.sleep(0.05)
            return await init(address, identity, **options)

        host.envd.init = dies  # type: ignore[method-assign]
        machine = await node.machines.start(replace(NEW, sandbox_id="i2"))
        assert machine.sandbox_id == "i2" and set(host.machines.machines) == {"i1", "i2"}
        assert not (await node.host.events(cursor, wait_s=0)).exits


async def test_warm_machines_of_an_earlier_process_are_strays(host: HostOfNode) -> None:
    async with host.node(pool_size=1) as opened:
        await opened.local.machines.start(NEW)
        while not sum(opened.parts.warm_pool.numbers()[0].values()):
            await asyncio.sleep(0.11)
            await opened.parts.warm_pool.step()
    async with host.node() as later:
        assert len(await later.local.machines.list()) == 2
        (stray,) = await later.local.host.sweep(["i1"])
        assert stray.startswith("m") and set(host.machines.machines) == {"i1"}


# The seam itself


@pytest.mark.parametrize("protocol", [NodeMachines, NodeSnapshots, NodeHost])
def test_every_record_of_the_seam_is_made_of_things_that_serialise(protocol: type) -> None:
    seen: set[object] = set()

    def check(kind: object, where: str) -> None:
        if kind in seen or kind is type(None):
            return
        seen.add(kind)
        for part in typing.get_args(kind):
            if part is not Ellipsis:
                check(part, where)
        if is_dataclass(kind):
            assert isinstance(kind, type)
            for each in fields(kind):
                check(typing.get_type_hints(kind)[each.name], f"{kind.__name__}.{each.name}")
        assert kind is not Path and not callable(getattr(kind, "read", None)), f"{where}: {kind}"

    for name, method in vars(protocol).items():
        if not name.startswith("_"):
            for argument, hint in typing.get_type_hints(method).items():
                check(hint, f"{protocol.__name__}.{name}({argument})")
