"""What a runtime driver writes down about its machines: a record before one is made, removed after all of it is gone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sandlot.engine.core.errors import MachineFailed, NotFound
from sandlot.engine.core.model import Instance

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is written down before a machine is made, and removed after all of it is gone."""

    machine_id: str
    directory: str
    cpu_count: int
    memory_mb: int
    disk_mb: int
    version: str  # of the program that runs it, in its own words
    program: str = ""  # the same by content: a checkpoint is restored by the program that wrote it

    @property
    def place(self) -> Path:
        return Path(self.directory) / "runtime"


class RecordFiles:
    """Records and pid files of one driver's machines, by machine id."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, record: Record) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        draft = self.directory / f".{record.machine_id}"
        draft.write_text(json.dumps(asdict(record)))
        draft.rename(self.directory / f"{record.machine_id}.json")

    def find(self, machine_id: str) -> Record | None:
        try:
            values = json.loads((self.directory / f"{check_id(machine_id)}.json").read_text())
        except FileNotFoundError:
            return None
        return _record(values)

    def get(self, machine_id: str) -> Record:
        record = self.find(machine_id)
        if record is None:
            raise NotFound(f"sandbox {machine_id} has no machine on this host")
        return record

    def ids(self) -> set[str]:
        return {path.stem for path in self.directory.glob("*.json")}

    def ids_of_all_drivers(self) -> set[str]:
        return {path.stem for path in self.directory.parent.glob("*-machines/*.json")}

    def pid_file(self, machine_id: str) -> Path:
        return self.directory / f"{check_id(machine_id)}.pid"

    def remove(self, machine_id: str) -> None:
        for suffix in (".pid", ".json"):
            (self.directory / f"{machine_id}{suffix}").unlink(missing_ok=True)


def check_id(machine_id: str) -> str:
    if not ID.fullmatch(machine_id):
        raise MachineFailed(f"{machine_id!r} cannot name a machine; use letters, digits, '-' and '_'")
    return machine_id


def record_of(instance: Instance) -> Record | None:
    try:
        return _record(instance.state)
    except (KeyError, TypeError):
        return None


def _record(values: Mapping[str, Any]) -> Record:
    renamed = {"machine_id" if name == "sandbox_id" else name: value for name, value in values.items()}  # before 0.2
    return Record(**renamed)
