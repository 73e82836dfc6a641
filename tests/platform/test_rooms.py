"""The directions in which the rooms of the platform may import, checked against the source."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "src" / "sandlot" / "platform"
CORE = {"model", "errors", "ports"}
SERVICES = {
    "access",
    "commands",
    "events",
    "files",
    "health",
    "ledger",
    "policy",
    "queue",
    "recovery",
    "sessions",
    "toolbox",
    "webhooks",
}
ADAPTERS = {"store", "providers", "post", "configuration"}
DOORS = {"api"}
WIRING = {"assembly"}


def imported(path: Path) -> set[str]:
    """Everything a module imports, in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms(path: Path) -> set[str]:
    return {name.split(".")[2] for name in imported(path) if re.match(r"sandlot\.platform\.\w+", name)}


def modules(names: set[str]) -> list[Path]:
    return [path for name in sorted(names) for path in (ROOM / name).rglob("*.py")] + [
        path for name in sorted(names) if (path := (ROOM / name).with_suffix(".py")).exists()
    ]


def test_every_room_is_on_the_plan() -> None:
    found = {path.stem for path in ROOM.iterdir() if path.suffix == ".py" or path.is_dir()} - {
        "__init__",
        "__pycache__",
    }
    assert found == CORE | SERVICES | ADAPTERS | DOORS | WIRING


@pytest.mark.parametrize(
    ("who", "whom"),
    [
        (CORE, CORE),
        (SERVICES, CORE | SERVICES),
        (ADAPTERS, CORE | ADAPTERS),
        (DOORS, CORE | SERVICES | DOORS),
    ],
    ids=["core", "services", "adapters", "doors"],
)
def test_each_kind_of_room_imports_only_what_it_may(who: set[str], whom: set[str]) -> None:
    assert modules(who)
    for path in modules(who):
        assert rooms(path) <= whom, path


def test_core_is_the_standard_library_alone() -> None:
    for path in modules(CORE):
        for name in imported(path):
            assert name.split(".")[0] in sys.stdlib_module_names or name.startswith("sandlot.platform"), (
                f"{path}: {name}"
            )


def test_sandboxes_are_reached_through_the_sdk_and_nothing_else() -> None:
    for path in ROOM.rglob("*.py"):
        names = imported(path)
        assert not any(name.startswith("sandlot.engine") for name in names), path
        if any(name.split(".")[0] == "e2b" for name in names):
            assert path == ROOM / "providers" / "e2b.py"


def test_every_error_has_a_status() -> None:
    from sandlot.platform import errors
    from sandlot.platform.api.errors import STATUS, status_of

    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PlatformError)
    ]
    assert set(STATUS) <= set(kinds)
    for kind in kinds:
        assert kind is errors.PlatformError or kind is errors.ConfigurationError or status_of(kind("x")) != 500
