"""Words for commits: which subjects are conventional, and a type, scope and subject for a change that has none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

TYPES = ("build", "chore", "ci", "docs", "feat", "fix", "perf", "refactor", "revert", "style", "test")
MAX_SUBJECT = 72
_CONVENTIONAL = re.compile(rf"(?:{'|'.join(TYPES)})(?:\([\w./ -]{{1,60}}\))?!?: \S.*")
_MANIFESTS = frozenset(
    [
        "pyproject.toml",
        "requirements.txt",
        "requirements.lock",
        "package.json",
        "package-lock.json",
        "pnpm-lock.yaml",
        "yarn.lock",
        "go.mod",
        "go.sum",
        "Cargo.toml",
        "Cargo.lock",
        "Makefile",
        "Dockerfile",
        "setup.py",
        "setup.cfg",
        "pom.xml",
        "build.gradle",
    ]
)
_WORDS = (
    ("fix", r"fix|fixes|fixed|bug|bugs|repair|broken|crash|crashes|error|errors|wrong|regression"),
    ("perf", r"faster|speed|performance|optimi[sz]e"),
    ("refactor", r"refactor|rename|restructure|simplify|extract|clean|move"),
    ("docs", r"document|documentation|docs|readme"),
    ("test", r"tests?|coverage"),
    ("feat", r"add|adds|implement|support|create|introduce|new|write|build|make|let|allow"),
    ("chore", r"bump|update|upgrade|remove|delete"),
)
_ROOTS = frozenset({"src", "lib", "packages", "apps", "crates", "cmd", "internal", "modules", "services"})


def is_conventional(subject: str) -> bool:
    return bool(_CONVENTIONAL.fullmatch(subject)) and len(subject) <= 120


def type_of(title: str, paths: Sequence[str]) -> str:
    """By what was changed, if that is clear; else by the words of the title, the first that says something."""
    kinds = {_kind(path) for path in paths}
    if len(kinds) == 1 and (only := next(iter(kinds))) is not None:
        return only
    found = [
        (match.start(), kind) for kind, words in _WORDS if (match := re.search(rf"\b(?:{words})\b", title.lower()))
    ]
    return min(found)[1] if found else "chore"


def scope_of(paths: Sequence[str]) -> str | None:
    """The one directory that all of it is in; documentation and tests beside the code do not count."""
    code = [path for path in paths if _kind(path) is None]
    tops = {_top(path) for path in code or paths}
    top = next(iter(tops)) if len(tops) == 1 else None
    name = re.sub(r"[^a-z0-9-]+", "-", top.lower()).strip("-") if top else ""
    return name[:30] or None


def subject_of(title: str, paths: Sequence[str]) -> str:
    if is_conventional(title):
        return title
    kind, scope = type_of(title, paths), scope_of(paths)
    words = re.sub(r"\s+", " ", title).strip().rstrip(".") or "change"
    first, _, rest = words.partition(" ")
    if first.lower() == kind and rest:  # the type says it already
        words, first = rest, rest.split(" ", 1)[0]
    if first[1:].islower() or len(first) == 1:  # no name, no abbreviation
        words = words[0].lower() + words[1:]
    head = f"{kind}({scope}): " if scope and scope not in (kind, f"{kind}s") else f"{kind}: "
    return _cut(head + words, MAX_SUBJECT)


def message_of(title: str, paths: Sequence[str], *, body: str, task: str, agent: str, agent_id: str) -> str:
    parts = [subject_of(title, paths)]
    if body.strip():
        parts.append(_cut(body.strip(), 4000))
    parts.append(f"Task: {task}\nCo-authored-by: {agent} <{agent_id}@agents.sandlot.invalid>")
    return "\n\n".join(parts).replace("\0", "") + "\n"


def _kind(path: str) -> str | None:
    parts = PurePosixPath(path)
    names = [part.lower() for part in parts.parts]
    if names[:2] == [".github", "workflows"] or parts.name in (".gitlab-ci.yml", "Jenkinsfile"):
        return "ci"
    if parts.suffix.lower() in (".md", ".rst", ".adoc") or names[0] in ("docs", "doc"):
        return "docs"
    stem = parts.name.lower()
    if {"tests", "test", "__tests__", "spec"} & set(names[:-1]) or re.match(r"test_|.*[._-](?:test|spec)\.", stem):
        return "test"
    if parts.name in _MANIFESTS:
        return "build"
    return None


def _top(path: str) -> str | None:
    parts = PurePosixPath(path).parts
    if len(parts) > 2 and parts[0].lower() in _ROOTS:
        return parts[1]
    return parts[0] if len(parts) > 1 and parts[0].lower() not in _ROOTS else None


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
