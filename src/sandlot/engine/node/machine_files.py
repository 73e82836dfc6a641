"""What is written down on the host about a machine: enough for another process to take it over, pause it or take it away."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandlot.engine.core.model import Checkpoint, Instance, Machine, PauseMode, Resources
from sandlot.engine.core.ports import Runtime

FILE = "machine.json"
Window = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class BootRecord:
    """What a machine began with; its saved state needs the same."""

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


def begun(values: Mapping[str, Any]) -> BootRecord:
    return BootRecord(
        guest=values["guest"],
        layers=tuple(values["layers"]),
        boot_id=values["boot_id"],
        resources=Resources(**values["resources"]),
    )


def hide(record: Mapping[str, Any], window: Window) -> dict[str, Any]:
    """The record, with a time added in which the machine was nobody's: its log is silent about that."""
    return {**record, "hidden": [moment.isoformat() for moment in window]}


def hidden(record: Mapping[str, Any]) -> Window | None:
    moments = record.get("hidden")
    return (datetime.fromisoformat(moments[0]), datetime.fromisoformat(moments[1])) if moments else None


def facts(name: str, instance: Instance, begun: BootRecord, mode: PauseMode, token: str | None) -> Checkpoint:
    return Checkpoint(
        name=name,
        runtime=instance.runtime,
        program=instance.state.get("program", ""),
        mode=mode,
        guest=begun.guest,
        layers=begun.layers,
        resources=begun.resources,
        boot_id=begun.boot_id,
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
    return record if isinstance(record, dict) else {}
