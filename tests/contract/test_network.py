"""The contract of the `Network` port, for the fake and for real namespaces."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from tests.fakes_network import FakeHost, FakeNetwork

from sandlot.engine.core.errors import Conflict, NoCapacity, NotFound
from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.core.ports import Network
from sandlot.engine.node.network.slots import Slots

POLICY = NetworkPolicy()
CAPACITY = 4
Restart = Callable[[], Awaitable[Network]]


@pytest.fixture(params=["fake", "slots"])
async def restart(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Restart]:
    """Starts the network of one host; called again, stops it and starts it anew."""
    host, instance = FakeHost(), secrets.token_hex(3)
    # Small, to be full soon; by chance, so that test runs side by side do not meet.
    pool = IPv4Network((int(IPv4Address("10.216.0.0")) + 8 * secrets.randbelow(1 << 13), 29))
    current: list[FakeNetwork | Slots] = []

    def make() -> FakeNetwork | Slots:
        if request.param == "fake":
            return FakeNetwork(host, CAPACITY)
        return Slots(tmp_path, instance, pool, warm=1)

    async def start() -> Network:
        if current:
            await current.pop().close()
        current.append(make())
        await current[0].open()
        return current[0]

    yield start
    await current[0].destroy()


@pytest.fixture
async def network(restart: Restart) -> Network:
    return await restart()


async def test_slots_have_their_own_address_and_the_same_guest_address(network: Network) -> None:
    one, two = await network.acquire("i1", POLICY), await network.acquire("i2", POLICY)
    assert one.address != two.address and one.netns != two.netns and one.index != two.index
    assert (one.guest_address, one.guest_gateway, one.guest_prefix) == (
        two.guest_address,
        two.guest_gateway,
        two.guest_prefix,
    )


async def test_claims_tell_who_holds_what(network: Network) -> None:
    slot = await network.acquire("i1", POLICY)
    assert dict(await network.claims()) == {"i1": slot}
    await network.release("i1")
    assert not await network.claims()


async def test_a_second_slot_for_the_same_sandbox_is_refused(network: Network) -> None:
    slot = await network.acquire("i1", POLICY)
    with pytest.raises(Conflict):
        await network.acquire("i1", POLICY)
    assert dict(await network.claims()) == {"i1": slot}


async def test_a_released_sandbox_can_have_a_slot_again(network: Network) -> None:
    await network.acquire("i1", POLICY)
    await network.release("i1")
    await network.acquire("i1", POLICY)
    assert set(await network.claims()) == {"i1"}


async def test_release_is_idempotent_and_fine_for_strangers(network: Network) -> None:
    kept = await network.acquire("kept", POLICY)
    await network.acquire("i1", POLICY)
    await network.release("i1")
    await network.release("i1")
    await network.release("never-seen")
    assert dict(await network.claims()) == {"kept": kept}
    later = [await network.acquire(f"later{number}", POLICY) for number in range(CAPACITY - 1)]
    assert len({slot.address for slot in (kept, *later)}) == CAPACITY, "a slot released twice was given out twice"
    with pytest.raises(NoCapacity):
        await network.acquire("too-many", POLICY)


async def test_when_all_slots_are_taken_there_is_no_capacity_until_one_is_released(network: Network) -> None:
    for number in range(CAPACITY):
        await network.acquire(f"i{number}", POLICY)
    with pytest.raises(NoCapacity):
        await network.acquire("too-many", POLICY)
    await network.release("i0")
    await network.acquire("fits", POLICY)
    assert len(await network.claims()) == CAPACITY


async def test_a_policy_needs_a_slot(network: Network) -> None:
    with pytest.raises(NotFound):
        await network.apply("never-seen", POLICY)
    with pytest.raises(NotFound):
        await network.adopt("never-seen", POLICY)


async def test_a_restart_finds_claims_and_takes_them_over(restart: Restart) -> None:
    slot = await (await restart()).acquire("i1", POLICY)
    network = await restart()
    assert dict(await network.claims()) == {"i1": slot}
    with pytest.raises(Conflict):
        await network.acquire("i1", POLICY)
    assert await network.adopt("i1", NetworkPolicy(deny_out=("198.51.100.0/24",))) == slot
    await network.apply("i1", POLICY)
    assert (await network.acquire("i2", POLICY)).address != slot.address
    await network.release("i1")
    assert set(await network.claims()) == {"i2"}


async def test_a_claim_that_was_never_taken_over_can_be_released(restart: Restart) -> None:
    await (await restart()).acquire("i1", POLICY)
    network = await restart()
    await network.release("i1")
    assert not await network.claims()


async def test_opening_twice_disturbs_nothing(network: Network) -> None:
    slot = await network.acquire("i1", POLICY)
    await network.open()
    assert dict(await network.claims()) == {"i1": slot}
    await network.apply("i1", NetworkPolicy(allow_internet=False))
