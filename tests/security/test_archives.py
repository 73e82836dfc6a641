"""Archives that take more than they are worth: they cost their own build, and nothing of the host."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from sandlot.data_files import SOURCES
from sandlot.engine.core.errors import StepFailed
from sandlot.engine.node import confined
from sandlot.engine.node.confined import Allowance, OverLimit
from sandlot.engine.node.images import importing, unpacking
from sandlot.engine.node.images.layers import Layers
from sandlot.engine.node.processes import CommandFailed
from sandlot.engine.node.runtimes import cgroups

ROOM = 4 << 30
SMALL = Allowance(file_bytes=1 << 20, memory_bytes=128 << 20, cpu_s=2, timeout_s=60)
EATER = "x = []\nwhile True: x.append(bytearray(1 << 20))"


def header(kind: bytes, size: int, name: str = "x") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def zeros(begin: bytes, size: int) -> bytes:
    """A gzip file that begins like this and goes on with zeros, made without holding them."""
    packer = zlib.compressobj(9, wbits=31)
    out = [packer.compress(begin)]
    piece = b"0" * (1 << 20)
    out.extend(packer.compress(piece) for _ in range(size >> 20))
    return b"".join([*out, packer.flush()])


def pax_bomb() -> bytes:
    size = 1200 << 20
    return zeros(header(tarfile.XHDTYPE, size), size)


def long_name_bomb() -> bytes:
    size = 1200 << 20
    return zeros(header(tarfile.GNUTYPE_LONGNAME, size), size)


def unknown_kind_bomb() -> bytes:
    """Passed over by readers, but not without unpacking it."""
    return zeros(header(b"Z", ROOM + (1 << 30)), 64 << 20)


def dictionary_bomb() -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("x"), io.BytesIO(b""))
    packed = bytearray(lzma.compress(plain.getvalue(), preset=0))
    # The size of the dictionary is a byte of the block's header, which is checked by a sum of its own.
    start = 12
    length = (packed[start] + 1) * 4
    block = packed[start : start + length]
    at = block.index(b"\x21\x01") + 2
    block[at] = 39  # 3 GiB
    block[-4:] = zlib.crc32(bytes(block[:-4])).to_bytes(4, "little")
    packed[start : start + length] = block
    return bytes(packed)


@pytest.mark.parametrize("bomb", [pax_bomb, long_name_bomb, unknown_kind_bomb, dictionary_bomb])
async def test_an_image_that_is_a_bomb_is_refused_with_a_sentence(tmp_path: Path, bomb: Callable[[], bytes]) -> None:
    file = tmp_path / "layer"
    file.write_bytes(bomb())
    assert file.stat().st_size < 8 << 20
    layers = Layers(tmp_path / "layers")
    with pytest.raises(StepFailed, match=r"the image cannot be used: .*(memory|larger than this server takes)"):
        await importing.unpack(layers, "bomb", [file], ROOM)
    assert not layers.has("bomb")
    assert not cgroups.names(confined.PARENT)


async def test_a_layer_of_very_many_entries_takes_no_more_memory_than_one_of_few(tmp_path: Path) -> None:
    file, target = tmp_path / "layer", tmp_path / "target"
    target.mkdir()
    with gzip.open(file, "wb", 1) as packed:
        block = header(tarfile.DIRTYPE, 0, "same") * 1000
        for _ in range(120):
            packed.write(block)
        packed.write(bytes(1024))
    with file.open("rb") as layer:
        done = await confined.run(
            *(sys.executable, "-P", "-m", unpacking.__name__),
            allowance=Allowance(file_bytes=1 << 20, memory_bytes=64 << 20),
            input=json.dumps({"root": str(target), "fds": [layer.fileno()], "limit": ROOM}).encode(),
            env={**confined.ENVIRONMENT, "PYTHONPATH": str(SOURCES)},
            pass_fds=[layer.fileno()],
        )
    assert json.loads(done.stdout) == {} and [entry.name for entry in target.iterdir()] == ["same"]


@pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd on this host")
async def test_zstd_may_write_no_more_than_an_image_may_have(tmp_path: Path) -> None:
    file = tmp_path / "layer"
    file.write_bytes(
        subprocess.run(["zstd", "-q", "-c"], input=bytes(20 << 20), capture_output=True, check=True).stdout
    )
    with pytest.raises(StepFailed, match="larger than the 8 MiB"):
        await importing.readable(file, 8 << 20)
    file.write_bytes(b"\x28\xb5\x2f\xfd" + b"junk")
    (tmp_path / "layer.tar").unlink()
    with pytest.raises(StepFailed, match="damaged"):
        await importing.readable(file, 8 << 20)


@pytest.mark.parametrize("program", [EATER, "while True: pass"], ids=["memory", "time"])
async def test_a_program_that_takes_all_it_can_get_is_ended(program: str) -> None:
    began = time.monotonic()
    with pytest.raises((OverLimit, CommandFailed)) as caught:
        await confined.run("python3", "-I", "-S", "-c", program, allowance=SMALL)
    assert "MemoryError" in str(caught.value) or "more than the" in str(caught.value)
    assert time.monotonic() - began < 50
    assert not cgroups.names(confined.PARENT)


async def test_memory_is_counted_by_the_group_too() -> None:
    """Files in memory are no address space, and several processes share one limit."""
    program = "import os\nfd = os.memfd_create('x')\nwhile True: os.write(fd, bytes(1 << 20))"
    with pytest.raises(OverLimit, match="128 MiB of memory"):
        await confined.run(
            "python3", "-I", "-S", "-c", program, allowance=Allowance(file_bytes=1 << 40, memory_bytes=128 << 20)
        )


async def test_a_confined_program_sees_no_network_and_no_processes_of_the_host() -> None:
    program = (
        "import os, socket\n"
        "print(os.getpid(), [name for _, name in socket.if_nameindex()])\n"
        f"try: os.kill({os.getpid()}, 0)\nexcept ProcessLookupError: print('nobody')"
    )
    done = await confined.run("python3", "-I", "-S", "-c", program, allowance=SMALL)
    assert done.stdout.decode().split("\n")[:2] == ["2 ['lo']", "nobody"]


async def test_what_a_confined_program_leaves_running_ends_with_it() -> None:
    program = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(1000)"
    await confined.run("python3", "-I", "-S", "-c", program, allowance=SMALL)
    assert not cgroups.names(confined.PARENT)
