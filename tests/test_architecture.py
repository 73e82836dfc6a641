"""The shape of the source: which folder may import which, how large seams and classes may be. Folders carry the rules."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "sandlot"

# Every module lives in one of these folders (or is one of the few files at the top of the package), and may import
# its own folder and the ones named here. The most specific folder counts.
MAY_IMPORT: dict[str, set[str]] = {
    "engine/core": set(),
    "engine/control": {"engine/core"},
    "engine/builds": {"engine/core", "engine/control"},
    "engine/gateway": {"engine/core", "engine/control", "server"},
    "engine/node": {"engine/core", "data_files"},
    "engine/store": {"engine/core", "sql"},
    "engine/api": {"engine/core", "engine/control", "engine/builds", "server"},
    "platform/core": set(),
    "platform/audit": {"platform/core"},
    "platform/config": {"platform/core"},
    "platform/events": {"platform/core"},
    "platform/identity": {"platform/core"},
    "platform/agents": {"platform/core", "platform/models", "data_files"},
    "platform/providers": {"platform/core"},
    "platform/git": {"platform/core"},
    "platform/models": {"platform/core", "platform/events"},
    "platform/forges": {"platform/core", "platform/events", "platform/git", "platform/identity"},
    "platform/sessions": {"platform/core", "platform/events", "platform/identity", "platform/providers"},
    "platform/tunnel": {"platform/core", "server", "data_files"},
    "platform/tasks": {
        "platform/core",
        "platform/agents",
        "platform/events",
        "platform/forges",
        "platform/git",
        "platform/identity",
        "platform/models",
        "platform/sessions",
        "platform/tunnel",
    },
    "platform/triggers": {"platform/core", "platform/events", "platform/forges", "platform/identity", "platform/tasks"},
    "platform/console": {
        "platform/core",
        "platform/identity",
        "platform/providers",
        "platform/sessions",
        "server",
        "data_files",
    },
    "platform/browsers": {"platform/core", "platform/events", "platform/providers"},
    "platform/store": {"platform/core", "sql"},
    "platform/api": {
        "platform/core",
        "platform/agents",
        "platform/audit",
        "platform/browsers",
        "platform/console",
        "platform/events",
        "platform/forges",
        "platform/git",
        "platform/identity",
        "platform/models",
        "platform/sessions",
        "platform/tasks",
        "platform/triggers",
        "server",
    },
    "recipes": {"data_files"},
    "server": set(),
    "sql": set(),
    "client": set(),
}
SHARED = {
    "addresses",
    "bounded_json",
    "children",
    "program",
    "spans",
    "tarfiles",
}  # leaves that know nobody and that everybody may use
EVERYTHING = ("wiring", "cli")  # what puts the parts together and what people type may know everyone

# What only some folders may touch, outside the package.
HOST = {"subprocess", "shutil", "os", "socket", "signal", "fcntl", "resource", "tempfile", "glob"}
PURE = ("engine/core", "platform/core")  # standard library alone
NO_HOST = ("engine/core", "engine/control", "engine/gateway", "engine/api", "platform/core", "platform/sessions")


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if "_data" not in path.parts)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def folder(parts: tuple[str, ...]) -> str | None:
    """The folder with rules of its own that these path parts are in."""
    for depth in (2, 1):
        name = "/".join(parts[:depth])
        if name in MAY_IMPORT or name in EVERYTHING:
            return name
    return None


def where(path: Path) -> str | None:
    return folder(path.relative_to(SOURCE).with_suffix("").parts)


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                yield path, node


def methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def test_every_module_lives_in_a_folder_with_rules() -> None:
    for path in modules():
        parts = path.relative_to(SOURCE).parts
        is_package = path.name == "__init__.py" and len(parts) <= 2
        at_top = len(parts) == 1 or parts[0] == "setup"
        assert where(path) or is_package or at_top, f"{path}: no rule in MAY_IMPORT covers this folder"


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_folders_import_only_what_their_rule_allows(room: str) -> None:
    allowed = MAY_IMPORT[room] | SHARED | {room}
    for path in modules():
        if where(path) != room:
            continue
        for name in imports(path):
            if name.startswith("sandlot."):
                parts = tuple(name.split(".")[1:])
                target = folder(parts) or parts[0]
                assert target in allowed, (
                    f"{path.relative_to(ROOT)} imports {name}; {room} may import {sorted(allowed)}"
                )


def test_nouns_errors_and_seams_need_only_the_standard_library() -> None:
    for path in modules():
        if where(path) in PURE:
            for name in imports(path):
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names or top == "sandlot", f"{path}: {name}"


def test_only_nodes_and_wiring_touch_the_host() -> None:
    for path in modules():
        if where(path) in NO_HOST:
            touched = {name.split(".")[0] for name in imports(path)} & HOST
            assert not touched, f"{path.relative_to(ROOT)} imports {sorted(touched)}: that is a node's work"


def test_only_providers_and_recipes_use_the_sdk_in_the_platform() -> None:
    for path in modules():
        if (where(path) or "").startswith(("platform/", "engine/")) and where(path) != "platform/providers":
            assert not any(name.split(".")[0] == "e2b" for name in imports(path)), path


def test_the_guest_imports_nothing_but_the_standard_library_and_itself() -> None:
    for path in (ROOT / "guest" / "envd").rglob("*.py"):
        for name in imports(path):
            assert name.split(".")[0] in sys.stdlib_module_names | {"envd", "_sha2", "_sha256"}, f"{path}: {name}"


def test_every_module_says_what_it_is_responsible_for() -> None:
    for path in [*modules(), *(ROOT / "guest").rglob("*.py")]:
        if path.read_text().strip():
            assert ast.get_docstring(tree(path)), f"{path} has no opening sentence"


def test_messages_name_commands_as_they_are_typed_linethe_code_was_installed() -> None:
    """`./sandlot` exists in a checkout only; `sandlot.program` knows. The pages of the reference are read in a checkout."""
    for path in modules():
        if path.name == "program.py" or "reference" in path.parts:
            continue
        documentation = {id(node.value) for node in ast.walk(tree(path)) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                line = f"{path.relative_to(ROOT)}:{node.lineno}"
                assert "./sandlot" not in node.value, f"{line} says ./sandlot; use sandlot.program.SANDLOT"


def test_seams_have_at_most_eight_methods() -> None:
    for path, node in classes():
        if is_protocol(node):
            assert len(methods(node)) <= 8, f"{path.relative_to(ROOT)}: {node.name} has {len(methods(node))} methods"


def test_no_class_has_more_than_25_methods() -> None:
    for path, node in classes():
        assert len(methods(node)) <= 25, f"{path.relative_to(ROOT)}: {node.name} has {len(methods(node))} methods"


def test_no_constructor_takes_more_than_eight_parameters() -> None:
    for path, node in classes():
        for method in methods(node):
            if method.name == "__init__":
                count = len(method.args.args) + len(method.args.kwonlyargs) - 1
                assert count <= 8, f"{path.relative_to(ROOT)}: {node.name} takes {count} parameters"


@pytest.mark.parametrize("half", ["engine", "platform"])
def test_a_class_name_means_one_thing_in_each_half(half: str) -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, node in classes():
        if path.is_relative_to(SOURCE / half) and not node.name.startswith("_"):
            found[node.name].append(str(path.relative_to(SOURCE)))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_wiring_refers_only_to_what_exists_already() -> None:
    """A nested function that uses a name which is assigned further down works only by luck of order."""
    for path in SOURCE.joinpath("wiring").glob("*.py"):
        for outer in ast.walk(tree(path)):
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
                _check_closures(path, outer)


def _check_closures(path: Path, outer: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    assigned: dict[str, int] = {}
    for node in ast.walk(outer):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned[node.id] = min(node.lineno, assigned.get(node.id, node.lineno))
    for inner in ast.walk(outer):
        if isinstance(inner, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) and inner is not outer:
            for node in ast.walk(inner):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    made = assigned.get(node.id, 0)
                    assert made <= inner.lineno or _is_local(inner, node.id), (
                        f"{path.name}:{inner.lineno} uses {node.id!r}, which is made in line {made}"
                    )


def _is_local(inner: ast.AST, name: str) -> bool:
    return any(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
        or (isinstance(node, ast.arg) and node.arg == name)
        for node in ast.walk(inner)
    )


@pytest.mark.parametrize("half", ["engine", "platform"])
def test_migrations_are_one_chain(half: str) -> None:
    """Two that were written side by side with the same number would stop the next start of every server."""
    store = ROOT / "src" / "sandlot" / half / "store"
    written = [path.read_text() for path in (store / "migrations" / "versions").glob("*.py")]
    names = [found[1] for text in written if (found := re.search(r'^revision = "(\w+)"', text, re.MULTILINE))]
    below = [found[1] for text in written if (found := re.search(r'^down_revision = "(\w+)"', text, re.MULTILINE))]
    assert len(set(names)) == len(names) and len(set(below)) == len(below), sorted(names)
    newest = re.search(r'^REVISION = "(\w+)"', (store / "schema.py").read_text(), re.MULTILINE)
    assert newest is not None and set(names) - set(below) == {newest[1]}
