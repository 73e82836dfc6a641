"""The stock templates: reads their recipes from `templates/`, and notes which recipe each was built from."""

from __future__ import annotations

import hashlib
import os
import tomllib
from pathlib import Path
from typing import Any

from sandlot.data_files import data_files
from sandlot.recipes import dockerfiles
from sandlot.recipes.recipe import Recipe, RecipeFailed

STOCK = data_files("templates")


def names() -> list[str]:
    """The stock templates that have a Dockerfile; `base` is made by the server itself."""
    return sorted(path.parent.name for path in STOCK.glob("*/Dockerfile") if (path.parent / "template.toml").exists())


def read(name: str) -> Recipe:
    if name not in names():
        raise RecipeFailed(f"there is no stock template {name!r}; there are: {', '.join(names())}")
    directory = STOCK / name
    facts = _facts(name)
    return Recipe(
        name=facts.get("name", name),
        dockerfile=(directory / "Dockerfile").read_text(),
        context=directory,
        extra={key: STOCK.parent / path for key, path in facts.get("context", {}).items()},
        cpu_count=facts.get("cpu_count", facts.get("cpu")),
        memory_mb=facts.get("memory_mb", facts.get("memory")),
        start_cmd=facts.get("start_cmd"),
        ready_cmd=facts.get("ready_cmd"),
        description=facts.get("description", ""),
        smoke=tuple(facts.get("smoke", {}).get("commands", ())),
        build_s=facts.get("build_s"),
    )


def find(name: str) -> str | None:
    """The stock template that a name means: its own, or another that its `template.toml` lists."""
    known = names()
    if name in known:
        return name
    return next((each for each in known if name in _facts(each).get("also", ())), None)


def refusal(name: str) -> str | None:
    """Why a public template of E2B is not here; None: it is no such name."""
    known = tomllib.loads((STOCK / "not_here.toml").read_text()) if (STOCK / "not_here.toml").exists() else {}
    reason = known.get(name)
    return str(reason) if reason else None


def _facts(name: str) -> dict[str, Any]:
    return tomllib.loads((STOCK / name / "template.toml").read_text())


def needed(name: str) -> list[str]:
    """Stock templates that a stock template is built upon."""
    return [each for each in dockerfiles.templates_needed(read(name).dockerfile) if each in names()]


def digest(name: str) -> str:
    """Of all that a stock template is made from: it changes when the recipe does, or one that it is built upon."""
    recipe = read(name)
    found = hashlib.sha256()
    for top in (recipe.context, *recipe.extra.values()):
        for path in sorted(path for path in top.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            found.update(f"{path.relative_to(top)}\0{path.stat().st_mode & 0o111}\0".encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    for each in needed(name):
        found.update(digest(each).encode())
    return found.hexdigest()


class StockNotes:
    """Which recipe each stock template of an instance was built from: a file with its digest, in the data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._directory = data_dir / "stock"

    def get(self, name: str) -> str | None:
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return None

    def put(self, name: str, digest: str) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        draft = self._directory / f".{name}-{os.getpid()}"
        draft.write_text(digest)
        draft.rename(self._directory / name)

    def remove(self, name: str) -> None:
        (self._directory / name).unlink(missing_ok=True)
