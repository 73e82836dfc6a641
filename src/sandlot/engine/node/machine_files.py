"""What is written down on the host about a machine: enough for another process to adopt, pause or remove it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandlot.engine.core.codec import decode
from sandlot.engine.core.model import Checkpoint, Instance, Machine, PauseMode, Resources
from sandlot.engine.core.ports import Runtime

FILE = "machine.json"
_RENAMED = {"begun": "boot", "hidden": "prepared"}  # as versions before 0.2 wrote them; their machines may still run
Window = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootRecord:
    """What a machine booted with; its checkpoint needs the same."""

    guest: str
    layers: tuple[str, ...]
    boot_id: str
    resources: Resources


def machine(sandbox_id: str, runtime: Runtime, record: Mapping[str, Any]) -> Machine:
    return Machine(
        sandbox_id=sandbox_id,
        runtime=runtime.name,
        isolation=runtime.isolation,
        address=str(record.get("address", "")),
        handle={"slot": record.get("slot")},
    )


def boot_record(values: Mapping[str, Any]) -> BootRecord:
    record: BootRecord = decode(BootRecord, dict(values))
    return record


def with_prepared(record: Mapping[str, Any], window: Window) -> dict[str, Any]:
    """The record, with the time in which the machine belonged to no sandbox: its log does not show that time."""
    return {**record, "prepared": [moment.isoformat() for moment in window]}


def prepared(record: Mapping[str, Any]) -> Window | None:
    moments = record.get("prepared")
    return (datetime.fromisoformat(moments[0]), datetime.fromisoformat(moments[1])) if moments else None


def checkpoint_facts(name: str, instance: Instance, boot: BootRecord, mode: PauseMode, token: str | None) -> Checkpoint:
    return Checkpoint(
        name=name,
        runtime=instance.runtime,
        program=instance.state.get("program", ""),
        mode=mode,
        guest=boot.guest,
        layers=boot.layers,
        resources=boot.resources,
        boot_id=boot.boot_id,
        envd_token=token,
        created_at=datetime.now(UTC),
        size_bytes=0,
    )


def write(directory: Path, record: Mapping[str, Any]) -> None:
    temporary = directory / f"{FILE}.new"
    temporary.write_text(json.dumps(record))
    temporary.rename(directory / FILE)


def read(directory: Path) -> Mapping[str, Any]:
    try:
        record = json.loads((directory / FILE).read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {_RENAMED.get(str(name), str(name)): value for name, value in record.items()}
