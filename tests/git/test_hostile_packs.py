"""Packs that a hostile client sends: small on the wire, huge in memory."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

from tests.git.world import ENV, well

from sandlot.platform.git.child import Child

BASE = bytes(65536)


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def entry(kind: int, size: int) -> bytes:
    first, rest = size & 15, size >> 4
    head = bytes([kind << 4 | first | (0x80 if rest else 0)])
    return head + (varint(rest) if rest else b"")


def delta_bomb(copies: int) -> bytes:
    """A blob of 64 KiB, and one that is made of it many times over."""
    delta = varint(len(BASE)) + varint(len(BASE) * copies) + b"\x80" * copies
    base_id = hashlib.sha1(b"blob %d\0" % len(BASE) + BASE).digest()
    pack = b"PACK" + (2).to_bytes(4) + (2).to_bytes(4)
    pack += entry(3, len(BASE)) + zlib.compress(BASE)
    pack += entry(7, len(delta)) + base_id + zlib.compress(delta)
    return pack + hashlib.sha1(pack).digest()


async def index(at: Path, pack: bytes) -> tuple[int, str]:
    child = await Child.start(["git", "index-pack", "--stdin"], env=ENV, cwd=at, has_input=True)
    try:
        assert child.stdin is not None
        child.stdin.write(pack)
        child.stdin.close()
        return await child.wait(), child.stderr
    finally:
        await child.close()


async def test_a_pack_that_unpacks_to_more_than_git_may_have_is_refused(tmp_path: Path) -> None:
    await well("init", "-q", "--bare", tmp_path)
    assert (await index(tmp_path, delta_bomb(16)))[0] == 0
    bomb = delta_bomb(24_000)  # 1.5 GB
    assert len(bomb) < 100_000
    status, said = await index(tmp_path, bomb)
    assert status != 0 and "memory" in said.lower()
