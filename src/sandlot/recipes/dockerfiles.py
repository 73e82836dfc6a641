"""Dockerfiles as text: their stages, their arguments, and what a stage copies from an earlier one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandlot.recipes.recipe import RecipeFailed

TEMPLATE_PREFIX = "sandlot-template/"  # FROM with this names a template of the server instead of an image
_FROM = re.compile(r"^(\s*FROM\s+(?:--\S+\s+)*)(\S+)((?:\s+AS\s+(\S+))?\s*)$", re.IGNORECASE)
_ARG = re.compile(r"^(\s*ARG\s+)([A-Za-z_]\w*)(?:=(.*))?$", re.IGNORECASE)
_COPY_FROM = re.compile(r"^(\s*(?:COPY|ADD)\s+(?:--\S+\s+)*?)--from=(\S+)\s+(.*)$", re.IGNORECASE)
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")


@dataclass(frozen=True, slots=True)
class Stage:
    """One FROM and what follows it."""

    name: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StageCopy:
    """A COPY --from: the number of its line, and what it names."""

    line: int
    head: str  # the instruction and its other flags
    stage: str
    sources: tuple[str, ...]
    target: str


def stages(dockerfile: str) -> list[Stage]:
    """The stages of a Dockerfile, each a Dockerfile of its own; arguments before the first FROM stand before all."""
    shared: list[str] = []
    found: list[tuple[str | None, list[str]]] = []
    for line, inside in _lines(dockerfile):
        match = None if inside else _FROM.match(line)
        if match:
            found.append((match[4], [*shared, line]))
        elif found:
            found[-1][1].append(line)
        else:
            shared.append(line)
    if not found:
        raise RecipeFailed("the Dockerfile has no FROM instruction")
    return [Stage(name, "\n".join(lines)) for name, lines in found]


def with_arguments(dockerfile: str, given: Sequence[str]) -> str:
    """The Dockerfile with values for its ARGs, as `--build-arg NAME=value` gives them."""
    values = dict(text.partition("=")[::2] for text in given)
    used, lines = set(), []
    for line, inside in _lines(dockerfile):
        match = None if inside else _ARG.match(line)
        if match and match[2] in values:
            used.add(match[2])
            line = f'{match[1]}{match[2]}="{_quoted(values[match[2]])}"'
        lines.append(line)
    if unknown := sorted(set(values) - used):
        raise RecipeFailed(f"--build-arg {unknown[0]}: the Dockerfile has no ARG of that name")
    return "\n".join(lines)


def _quoted(value: str) -> str:
    return re.sub(r'(["\\$])', r"\\\1", value)


def stage_copies(dockerfile: str) -> list[StageCopy]:
    found = []
    for number, (line, inside) in enumerate(_lines(dockerfile)):
        match = None if inside else _COPY_FROM.match(line)
        if match:
            words = match[3].split()
            flags = [word for word in words if word.startswith("--")]
            *sources, target = [word for word in words if not word.startswith("--")]
            head = match[1] + "".join(f"{flag} " for flag in flags)
            found.append(StageCopy(number, head, match[2], tuple(sources), target))
    return found


def with_local_copies(dockerfile: str, local: Mapping[StageCopy, Sequence[str]]) -> str:
    """Each COPY --from as a COPY of these paths of the context."""
    lines = dockerfile.splitlines()
    for copied, paths in local.items():
        lines[copied.line] = f"{copied.head}{' '.join(paths)} {copied.target}"
    return "\n".join(lines)


def with_stage_templates(dockerfile: str, templates: Mapping[str, str]) -> str:
    """FROM an earlier stage as FROM the template that was built of it."""
    lines = []
    for line, inside in _lines(dockerfile):
        match = None if inside else _FROM.match(line)
        template = templates.get(match[2].lower()) if match else None
        lines.append(f"{match[1]}{TEMPLATE_PREFIX}{template}{match[3]}" if match and template else line)
    return "\n".join(lines)


def templates_needed(dockerfile: str) -> list[str]:
    """The templates of the server that the Dockerfile builds upon."""
    images = [match[2] for line, inside in _lines(dockerfile) if not inside and (match := _FROM.match(line))]
    return [image.removeprefix(TEMPLATE_PREFIX) for image in images if image.startswith(TEMPLATE_PREFIX)]


def _lines(text: str) -> list[tuple[str, bool]]:
    """Lines, and whether each is inside a here-document or continues the one before."""
    found: list[tuple[str, bool]] = []
    end: str | None = None
    continues = False
    for line in text.splitlines():
        found.append((line, end is not None or continues))
        if end is not None:
            end = None if line.strip() == end else end
            continue
        match = _HEREDOC.search(line)
        end = match[2] if match else None
        continues = end is None and line.rstrip().endswith("\\")
    return found
