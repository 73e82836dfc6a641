"""The part of the network range that is this instance's own: chosen once, remembered, and never somebody else's."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from pathlib import Path

from sandlot.engine import processes
from sandlot.engine.errors import Unavailable
from sandlot.engine.network.plan import BLOCK_PREFIX

REGISTRY = Path("/run/sandlot/blocks")  # one file per instance on this host: its block and where its data is
_FENCE_METRIC = "2130213"


async def take(data_dir: Path, instance: str, pool: IPv4Network, *, keep: bool) -> IPv4Network:
    """This instance's block. A remembered one that now collides is replaced, unless slots in it are in use (`keep`).

    The whole block is fenced: an address without a slot leads nowhere. Without that, what the edge sends to a
    sandbox that has just ended would follow the host's default route to strangers.
    """
    former = remembered(data_dir)
    present = await _networks_present(instance, former)
    with _registry_locked():
        others = [*present, *_taken_by_others(instance)]
        block = former
        if block is None or not (keep or (block.subnet_of(pool) and _is_free(block, others))):
            block = _choose(pool, others)
            (data_dir / "network").mkdir(parents=True, exist_ok=True)
            _write(data_dir / "network" / "block", str(block))
        _write(REGISTRY / instance, json.dumps({"block": str(block), "data_dir": str(data_dir)}))
    if former not in (None, block):
        await _unfence(former)
    await processes.run("ip", "route", "replace", *_fence(block))
    return block


async def give_back(data_dir: Path, instance: str) -> None:
    await _unfence(remembered(data_dir))
    with _registry_locked():
        (REGISTRY / instance).unlink(missing_ok=True)
        (data_dir / "network" / "block").unlink(missing_ok=True)


def remembered(data_dir: Path) -> IPv4Network | None:
    try:
        return IPv4Network((data_dir / "network" / "block").read_text().strip())
    except (OSError, ValueError):
        return None


def _fence(block: IPv4Network) -> tuple[str, ...]:
    return "unreachable", str(block), "metric", _FENCE_METRIC


async def _unfence(block: IPv4Network | None) -> None:
    if block is not None:
        await processes.run("ip", "route", "del", *_fence(block), check=False)


async def _networks_present(instance: str, own: IPv4Network | None) -> list[IPv4Network]:
    """Networks that this host has addresses in or routes to, without this instance's own links and fence."""
    result = await processes.run("ip", "-4", "-json", "route", "show", "table", "all")
    found = []
    for route in json.loads(result.stdout or b"[]"):
        is_own_link = str(route.get("dev", "")).startswith(f"sl{instance}")
        if route["dst"] == "default" or is_own_link:
            continue
        network = IPv4Network(route["dst"], strict=False)
        if not (network == own and route.get("type") == "unreachable"):
            found.append(network)
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


def _taken_by_others(instance: str) -> Iterator[IPv4Network]:
    for entry in REGISTRY.iterdir():
        if entry.name == instance or entry.name.startswith("."):
            continue
        try:
            record = json.loads(entry.read_text())
            block, data_dir = IPv4Network(record["block"]), Path(record["data_dir"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if (data_dir / "network" / "block").exists():
            yield block
        else:  # its data directory is gone, and with it the instance
            entry.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text + "\n")
    part.replace(path)


@contextlib.contextmanager
def _registry_locked() -> Iterator[None]:
    REGISTRY.mkdir(parents=True, exist_ok=True)
    fd = os.open(REGISTRY / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # held for a few file operations only
        yield
    finally:
        os.close(fd)
