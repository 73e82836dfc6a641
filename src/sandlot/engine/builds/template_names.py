"""Names of templates: `[namespace/]alias[:tag]`, taken apart and checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandlot.engine.core.errors import InvalidRequest

DEFAULT_TAG = "default"
_ALIAS = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A template and one of its tags, by name. `tag` is None where none was given."""

    alias: str
    tag: str | None


def parse_name(text: str) -> Reference:
    """Raises `InvalidRequest`. A namespace is taken, and left to whoever looks the template up."""
    path, colon, tag = text.strip().partition(":")
    alias = path.rpartition("/")[2].lower()
    if not _ALIAS.fullmatch(alias):
        raise InvalidRequest(
            f"{text[:120]!r} cannot name a template: use letters, digits, '-' and '_', then a tag if you like, as in my-app:v2"
        )
    return Reference(alias, check_tag(tag) if colon else None)


def check_tag(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise InvalidRequest(f"{tag[:120]!r} cannot be a tag: use letters, digits, '.', '-' and '_'")
    return tag


def parse_tags(texts: Sequence[str], alias: str | None = None) -> tuple[str, ...]:
    """Tags, each alone or as `alias:tag` of the same template. Raises `InvalidRequest`."""
    tags = []
    for text in texts:
        name, colon, tag = text.rpartition(":")
        if colon and (not name or (alias is not None and parse_name(name).alias != alias)):
            raise InvalidRequest(f"{text[:120]!r} is not a tag of the template {alias!r}")
        tags.append(check_tag(tag))
    return tuple(dict.fromkeys(tags))
