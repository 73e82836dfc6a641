"""What one template is built from: the record, read from a Dockerfile and the e2b.toml beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class RecipeFailed(Exception):
    """A template cannot be built from its recipe; the message says why and what to do next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that one build needs."""

    name: str
    dockerfile: str
    context: Path
    extra: Mapping[str, Path] = field(default_factory=dict)  # directories that are copied into the context under a name
    cpu_count: int | None = None
    memory_mb: int | None = None
    start_cmd: str | None = None
    ready_cmd: str | None = None
    description: str = ""
    smoke: tuple[str, ...] = ()
    build_s: int | None = None  # about how long its build takes, where nothing of it is cached


def read_directory(file: Path | None, name: str | None) -> Recipe:
    """From a Dockerfile, and from an e2b.toml beside it as E2B's older CLI wrote it. Raises `RecipeFailed`."""
    directory = file.parent if file is not None else Path()
    config = directory / "e2b.toml"
    facts: dict[str, Any] = tomllib.loads(config.read_text()) if config.exists() else {}
    named = directory / str(facts.get("dockerfile", ""))
    candidates = [file] if file is not None else [named, directory / "e2b.Dockerfile", directory / "Dockerfile"]
    found = next((path for path in candidates if path is not None and path.is_file()), None)
    if found is None:
        raise RecipeFailed(f"no Dockerfile in {directory.absolute()}; name one with -f")
    chosen = name or facts.get("template_name") or facts.get("name")
    if not chosen:
        raise RecipeFailed("the template needs a name: --name NAME")
    return Recipe(
        name=str(chosen),
        dockerfile=found.read_text(),
        context=directory,
        cpu_count=facts.get("cpu_count"),
        memory_mb=facts.get("memory_mb"),
        start_cmd=facts.get("start_cmd"),
        ready_cmd=facts.get("ready_cmd"),
    )
