"""Imports images into the layer store: unpacks their layers into one, whether they were pulled or come from a file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandlot.data_files import SOURCES
from sandlot.engine.core.errors import MachineFailed, StepFailed
from sandlot.engine.core.model import Image
from sandlot.engine.node import confined, processes
from sandlot.engine.node.images import unpacking
from sandlot.engine.node.images.layers import Layers

UNPACK_TIMEOUT_S = 3600
FORMAT = 2  # raise it when the same image is unpacked to something else
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def layer_name(config_digest: str, layer_digests: Sequence[str]) -> str:
    """One layer per image, named by all that it is made of: a registry can put any layers to a configuration it knows."""
    parts = json.dumps([config_digest, *layer_digests]).encode()
    return f"image{FORMAT}-{hashlib.sha256(parts).hexdigest()[:32]}"


def scratch(layers: Layers) -> Path:
    """A directory for temporary files on the same disk as the layers."""
    directory = layers.directory / ".pulls"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


def as_image(description: str, layer: str, config: Mapping[str, Any]) -> Image:
    """What an image's configuration says, as far as sandboxes use it."""
    facts = config.get("config") or config.get("Config") or {}
    pairs = [text.split("=", 1) for text in facts.get("Env") or [] if isinstance(text, str) and "=" in text]
    return Image(
        description=description,
        layers=(layer,),
        env={name: value for name, value in pairs if name},
        user=facts.get("User") or None,
        workdir=facts.get("WorkingDir") or None,
    )


async def readable(path: Path, most_bytes: int) -> Path:
    """The layer in a form that Python reads: zstd is turned into a plain archive, which may not be larger than this."""
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != ZSTD_MAGIC:
        return path
    if shutil.which("zstd") is None:
        raise StepFailed(
            "a layer of the image is compressed with zstd, and this host has no `zstd`: apt-get install zstd"
        )
    plain = path.with_name(path.name + ".tar")
    try:
        with path.open("rb") as packed, plain.open("xb") as target:
            # It needs no name, no right and no privilege: only these two files.
            await confined.run(
                *(
                    "setpriv",
                    "--reuid=65534",
                    "--regid=65534",
                    "--clear-groups",
                    "--bounding-set=-all",
                    "--no-new-privs",
                ),
                *("--inh-caps=-all", "zstd", "-q", "-d", "-c"),
                allowance=confined.Allowance(file_bytes=most_bytes, timeout_s=UNPACK_TIMEOUT_S),
                stdin=packed,
                stdout=target,
            )
    except confined.OverLimit as error:
        raise StepFailed(f"a layer of the image cannot be used: {error}") from error
    except processes.CommandFailed as error:
        if plain.stat().st_size >= most_bytes:
            raise StepFailed(f"the image is larger than the {most_bytes >> 20} MiB it may be") from error
        raise StepFailed("a layer of the image is damaged: zstd cannot read it") from error
    path.unlink()
    return plain


async def unpack(layers: Layers, name: str, files: Sequence[Path], most_bytes: int) -> None:
    """Publish a layer from archives, bottom first. Raises `StepFailed`."""

    async def fill(target: Path) -> None:
        await unpack_into(target, files, most_bytes)

    await layers.publish(name, fill)


async def unpack_into(target: Path, files: Sequence[Path], most_bytes: int) -> None:
    """Unpack archives over each other into an empty directory, in a confined program. Raises `StepFailed`."""
    fds = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in files]
    job = {"root": str(target), "fds": fds, "limit": most_bytes}
    try:
        done = await confined.run(
            *(sys.executable, "-P", "-m", unpacking.__name__),
            allowance=confined.Allowance(file_bytes=most_bytes, timeout_s=UNPACK_TIMEOUT_S),
            input=json.dumps(job).encode(),
            env={**confined.ENVIRONMENT, "PYTHONPATH": str(SOURCES)},
            pass_fds=fds,
        )
    except confined.OverLimit as error:
        raise StepFailed(f"the image cannot be used: {error}") from error
    except processes.CommandFailed as error:
        raise MachineFailed(f"an image could not be unpacked: {error.output.strip()[-300:]}") from error
    finally:
        for fd in fds:
            os.close(fd)
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise StepFailed(f"the image cannot be used: {answer['refused']}")


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
