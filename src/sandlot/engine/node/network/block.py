"""The part of the network range that is this instance's own: chosen once, remembered, and never somebody else's."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from sandlot.engine.core.errors import Unavailable
from sandlot.engine.node import processes
from sandlot.engine.node.network.plan import BLOCK_PREFIX

REGISTRY = Path("/run/sandlot/blocks")  # one file per instance on this host: its block and where its data is
_FENCE_METRIC = 2130213


async def take(data_dir: Path, instance: str, pool: IPv4Network, *, keep: bool) -> IPv4Network:
    """This instance's block. A remembered one that now collides is replaced, unless slots in it are in use (`keep`).

    The whole block is fenced: an address without a slot leads nowhere. Without that, what the node proxy sends to a
    sandbox that has just ended would follow the host's default route to strangers.
    """
    async with _registry_locked():
        former = remembered(data_dir)
        registered = _registered_by_others(instance)
        present = await _networks_present(instance, former, registered)
        block = former
        if block is None or not (keep or (block.subnet_of(pool) and _is_free(block, [*present, *registered]))):
            block = _choose(pool, [*present, *registered])
            (data_dir / "network").mkdir(parents=True, exist_ok=True)
            _write(data_dir / "network" / "block", str(block))
            await _unfence(former)
        _write(REGISTRY / instance, json.dumps({"block": str(block), "data_dir": str(data_dir)}))
        await processes.run("ip", "route", "replace", *_fence(block))
    return block


async def give_back(data_dir: Path, instance: str) -> None:
    async with _registry_locked():
        await _unfence(remembered(data_dir) or _block_in(REGISTRY / instance))
        (REGISTRY / instance).unlink(missing_ok=True)
        (data_dir / "network" / "block").unlink(missing_ok=True)


def remembered(data_dir: Path) -> IPv4Network | None:
    try:
        return IPv4Network((data_dir / "network" / "block").read_text().strip())
    except (OSError, ValueError):
        return None


def _fence(block: IPv4Network) -> tuple[str, ...]:
    return "unreachable", str(block), "metric", str(_FENCE_METRIC)


async def _unfence(block: IPv4Network | None) -> None:
    if block is not None:
        await processes.run("ip", "route", "del", *_fence(block), check=False)


async def _networks_present(
    instance: str, own: IPv4Network | None, registered: Sequence[IPv4Network]
) -> list[IPv4Network]:
    """Networks that this host has addresses in or routes to, without this instance's own links and fence.

    Fences that instances left when their data was deleted are taken down: nobody else would.
    """
    result = await processes.run("ip", "-4", "-json", "route", "show", "table", "all")
    found: list[IPv4Network] = []
    fences: list[IPv4Network] = []
    for route in json.loads(result.stdout or b"[]"):
        if route["dst"] == "default" or str(route.get("dev", "")).startswith(f"sl{instance}"):
            continue
        network = IPv4Network(route["dst"], strict=False)
        is_fence = route.get("type") == "unreachable" and route.get("metric") == _FENCE_METRIC
        (fences if is_fence else found).append(network)
    for fence in fences:
        if fence != own and fence not in registered and _is_free(fence, found):
            await _unfence(fence)
    return found


def _choose(pool: IPv4Network, others: Iterable[IPv4Network]) -> IPv4Network:
    candidates = pool.subnets(new_prefix=BLOCK_PREFIX) if pool.prefixlen <= BLOCK_PREFIX else iter([pool])
    taken = list(others)
    for block in candidates:
        if _is_free(block, taken):
            return block
    raise Unavailable(
        f"no part of {pool} is free for sandbox networks on this host: other routes or instances use it. "
        "Set SANDLOT_NETWORK_RANGE to a private range that nothing here uses (`ip route` shows what does)"
    )


def _is_free(block: IPv4Network, others: Iterable[IPv4Network]) -> bool:
    return not any(block.overlaps(other) for other in others)


def _registered_by_others(instance: str) -> list[IPv4Network]:
    """Blocks of other instances; what is registered for a data directory that is gone is forgotten."""
    found = []
    for entry in REGISTRY.iterdir():
        if entry.name == instance or entry.name.startswith("."):
            continue
        block, data_dir = _block_in(entry), _data_dir_in(entry)
        if block is not None and data_dir is not None and remembered(data_dir) is not None:
            found.append(block)
        else:
            entry.unlink(missing_ok=True)
    return found


def _block_in(entry: Path) -> IPv4Network | None:
    try:
        return IPv4Network(json.loads(entry.read_text())["block"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _data_dir_in(entry: Path) -> Path | None:
    try:
        return Path(json.loads(entry.read_text())["data_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text + "\n")
    part.replace(path)


@contextlib.asynccontextmanager
async def _registry_locked() -> AsyncIterator[None]:
    REGISTRY.mkdir(parents=True, exist_ok=True)
    fd = os.open(REGISTRY / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(fcntl.flock, fd, fcntl.LOCK_EX)  # two instances may live in one process
        yield
    finally:
        os.close(fd)
