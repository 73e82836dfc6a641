"""The directions in which the rooms may import, checked against the source."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sandlot"
CORE = {"model", "errors", "ports", "spans"}
SERVICES = {
    "beginnings",
    "building",
    "suspension",
    "transitions",
    "lifecycle",
    "moves",
    "listing",
    "request",
    "sweeper",
    "reconcile",
    "access",
    "metrics_history",
    "placement",
    "routing",
    "policy",
}
DOORS = {"api", "edge"}
ADAPTERS = {
    "checkpoints",
    "machine_records",
    "machine_starts",
    "machines",
    "saved_states",
    "pool",
    "seeds",
    "runtimes",
    "network",
    "images",
    "store",
    "envd",
    "node",
    "processes",
    "stillness",
    "logbook",
    "commands",
    "startup",
    "workshop",
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules(room: str) -> list[Path]:
    base = SOURCE / "engine" / room
    return sorted(base.rglob("*.py")) if base.is_dir() else [p for p in [base.with_suffix(".py")] if p.exists()]


def engine_rooms(path: Path) -> set[str]:
    return {name.split(".")[2] for name in imports(path) if name.startswith("sandlot.engine.") and name.count(".") >= 2}


@pytest.mark.parametrize("room", sorted(CORE))
def test_core_imports_only_the_standard_library_and_core(room: str) -> None:
    for path in modules(room):
        for name in imports(path):
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or name.startswith("sandlot.engine"), f"{path}: {name}"
        assert engine_rooms(path) <= CORE


@pytest.mark.parametrize("room", sorted(SERVICES))
def test_services_import_only_core_and_each_other(room: str) -> None:
    for path in modules(room):
        assert engine_rooms(path) <= CORE | SERVICES, path


@pytest.mark.parametrize("room", sorted(DOORS))
def test_doors_never_import_adapters(room: str) -> None:
    for path in modules(room):
        assert not engine_rooms(path) & ADAPTERS, path


@pytest.mark.parametrize("room", sorted(ADAPTERS))
def test_adapters_know_neither_doors_nor_services_beyond_policy(room: str) -> None:
    for path in modules(room):
        assert not engine_rooms(path) & (DOORS | SERVICES - {"policy"}), path


def test_every_room_of_the_engine_is_on_the_plan() -> None:
    rooms = {p.stem for p in (SOURCE / "engine").iterdir() if p.suffix == ".py" or p.is_dir()}
    assert rooms - {"__init__", "__pycache__"} <= CORE | SERVICES | DOORS | ADAPTERS


def test_the_engine_never_imports_the_platform_nor_the_platform_the_engine() -> None:
    for path in (SOURCE / "engine").rglob("*.py"):
        assert not any(name.startswith("sandlot.platform") for name in imports(path)), path
    for path in (SOURCE / "platform").rglob("*.py"):
        assert not any(name.startswith("sandlot.engine") for name in imports(path)), path


def test_what_both_halves_share_knows_neither() -> None:
    for path in [SOURCE / "failures.py", *(SOURCE / "sql").rglob("*.py")]:
        assert not any(name.startswith(("sandlot.engine", "sandlot.platform")) for name in imports(path)), path


def test_the_guest_imports_nothing_but_the_standard_library_and_itself() -> None:
    for path in (ROOT / "guest" / "envd").rglob("*.py"):
        for name in imports(path):
            assert name.split(".")[0] in sys.stdlib_module_names | {"envd", "_sha2", "_sha256"}, f"{path}: {name}"


def test_every_module_says_what_it_is_responsible_for() -> None:
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "guest").rglob("*.py")]:
        if path.read_text().strip():
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no opening sentence"
