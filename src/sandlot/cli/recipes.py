"""Reads what a template is to be built from: Dockerfiles with stages and arguments, e2b.toml, and the stock recipes."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandlot.cli.output import Failure
from sandlot.data_files import data_files

STOCK = data_files("templates")
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_ARG = re.compile(r"^(\s*ARG\s+)([A-Za-z_]\w*)(?:=(.*))?$", re.IGNORECASE)
_COPY_FROM = re.compile(r"^(\s*(?:COPY|ADD)\s+(?:--\S+\s+)*?)--from=(\S+)\s+(.*)$", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """All that one build needs."""

    name: str
    dockerfile: str
    context: Path
    extra: Mapping[str, Path] = field(default_factory=dict)  # directories that are put into the context under a name
    cpu_count: int | None = None
    memory_mb: int | None = None
    start_cmd: str | None = None
    ready_cmd: str | None = None
    description: str = ""
    smoke: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """One FROM and what follows it."""

    name: str | None
    text: str


def stock_names() -> list[str]:
    """The stock templates that have a Dockerfile; `base` is made by the server itself."""
    return sorted(path.parent.name for path in STOCK.glob("*/Dockerfile") if (path.parent / "template.toml").exists())


def stock(name: str) -> Recipe:
    directory = STOCK / name
    if name not in stock_names():
        raise Failure(f"there is no stock template {name!r}; there are: {', '.join(stock_names())}")
    facts = tomllib.loads((directory / "template.toml").read_text())
    root = STOCK.parent
    return Recipe(
        name=facts.get("name", name),
        dockerfile=(directory / "Dockerfile").read_text(),
        context=directory,
        extra={key: root / path for key, path in facts.get("context", {}).items()},
        cpu_count=facts.get("cpu_count", facts.get("cpu")),
        memory_mb=facts.get("memory_mb", facts.get("memory")),
        start_cmd=facts.get("start_cmd"),
        ready_cmd=facts.get("ready_cmd"),
        description=facts.get("description", ""),
        smoke=tuple(facts.get("smoke", {}).get("commands", ())),
    )


def stock_needed(recipe: Recipe) -> list[str]:
    """Stock templates that a stock template is built upon."""
    found = re.findall(r"(?im)^\s*FROM\s+sandlot-template/([\w-]+)", recipe.dockerfile)
    return [name for name in found if name in stock_names()]


def stock_digest(name: str) -> str:
    """Of all that a stock template is made from: it changes when the recipe does, or one that it is built upon."""
    recipe = stock(name)
    digest = hashlib.sha256()
    for top in (recipe.context, *recipe.extra.values()):
        for path in sorted(path for path in top.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            digest.update(f"{path.relative_to(top)}\0{path.stat().st_mode & 0o111}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for needed in stock_needed(recipe):
        digest.update(stock_digest(needed).encode())
    return digest.hexdigest()


def stock_note(data_dir: Path, name: str) -> Path:
    """Where an instance keeps the digest of the recipe that its stock template was built from."""
    return data_dir / "stock" / name


def of_directory(file: Path | None, name: str | None) -> Recipe:
    """From a Dockerfile, and from an e2b.toml beside it as E2B's older CLI wrote it."""
    directory = file.parent if file is not None else Path()
    config = directory / "e2b.toml"
    facts: dict[str, Any] = tomllib.loads(config.read_text()) if config.exists() else {}
    named = directory / str(facts.get("dockerfile", ""))
    candidates = [file] if file is not None else [named, directory / "e2b.Dockerfile", directory / "Dockerfile"]
    found = next((path for path in candidates if path is not None and path.is_file()), None)
    if found is None:
        raise Failure(f"no Dockerfile in {directory.absolute()}; name one with -f")
    chosen = name or facts.get("template_name") or facts.get("name")
    if not chosen:
        raise Failure("the template needs a name: --name NAME")
    return Recipe(
        name=str(chosen),
        dockerfile=found.read_text(),
        context=directory,
        cpu_count=facts.get("cpu_count"),
        memory_mb=facts.get("memory_mb"),
        start_cmd=facts.get("start_cmd"),
        ready_cmd=facts.get("ready_cmd"),
    )


def stages(dockerfile: str) -> list[Stage]:
    """The stages of a Dockerfile, each a Dockerfile of its own; arguments before the first FROM stand before all."""
    shared: list[str] = []
    found: list[tuple[str | None, list[str]]] = []
    for line, inside in _outside_heredocs(dockerfile):
        match = None if inside else _FROM.match(line)
        if match:
            found.append((match[2], [*shared, line]))
        elif found:
            found[-1][1].append(line)
        else:
            shared.append(line)
    if not found:
        raise Failure("the Dockerfile has no FROM instruction")
    return [Stage(name, "\n".join(lines)) for name, lines in found]


def with_arguments(dockerfile: str, given: Sequence[str]) -> str:
    """The Dockerfile with values for its ARGs, as `--build-arg NAME=value` gives them."""
    values = dict(text.partition("=")[::2] for text in given)
    used, lines = set(), []
    for line, inside in _outside_heredocs(dockerfile):
        match = None if inside else _ARG.match(line)
        if match and match[2] in values:
            used.add(match[2])
            line = f'{match[1]}{match[2]}="{_quoted(values[match[2]])}"'
        lines.append(line)
    if unknown := sorted(set(values) - used):
        raise Failure(f"--build-arg {unknown[0]}: the Dockerfile has no ARG of that name")
    return "\n".join(lines)


def _quoted(value: str) -> str:
    return re.sub(r'(["\\$])', r"\\\1", value)


@dataclass(frozen=True, slots=True)
class Copied:
    """A COPY --from: the line it stands in, and what it names."""

    line: int
    head: str
    stage: str
    sources: tuple[str, ...]
    target: str


def copied_from_stages(dockerfile: str) -> list[Copied]:
    found = []
    for number, (line, inside) in enumerate(_outside_heredocs(dockerfile)):
        match = None if inside else _COPY_FROM.match(line)
        if match:
            words = match[3].split()
            flags = [word for word in words if word.startswith("--")]
            *sources, target = [word for word in words if not word.startswith("--")]
            head = match[1] + "".join(f"{flag} " for flag in flags)
            found.append(Copied(number, head, match[2], tuple(sources), target))
    return found


def _outside_heredocs(text: str) -> list[tuple[str, bool]]:
    """Lines, and whether each is the inside of a here-document or goes on from the one before."""
    found: list[tuple[str, bool]] = []
    end: str | None = None
    goes_on = False
    for line in text.splitlines():
        inside = end is not None or goes_on
        found.append((line, inside))
        if end is not None:
            end = None if line.strip() == end else end
            continue
        match = _HEREDOC.search(line)
        end = match[2] if match else None
        goes_on = end is None and line.rstrip().endswith("\\")
    return found
