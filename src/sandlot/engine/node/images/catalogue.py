"""The local catalogue: which stock template stands in for a well-known image where no registry can be reached."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from sandlot.engine.node.images.base import TEMPLATES
from sandlot.engine.node.images.references import ImageReference


@dataclass(frozen=True, slots=True)
class Entry:
    pattern: str  # of the repository, without registry and tag
    template: str
    own: bool = False  # the image is E2B's own: the stock template is used even where a registry answers
    holds: str = ""  # what the stock template is, in words
    tags: tuple[str, ...] = ()  # patterns of those that this fits

    def fits(self, reference: ImageReference) -> bool:
        """Whether it is what the name says: a digest names one image alone, which the stock template never is."""
        return self.own or (reference.digest is None and any(fnmatchcase(reference.tag, tag) for tag in self.tags))


class Catalogue:
    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries

    @classmethod
    def read(cls, path: Path = TEMPLATES / "catalogue.toml") -> Catalogue:
        facts: Mapping[str, Mapping[str, Any]] = tomllib.loads(path.read_text())
        return cls(
            tuple(
                Entry(
                    pattern,
                    str(entry["template"]),
                    bool(entry.get("own", False)),
                    str(entry.get("is", "")),
                    tuple(entry.get("tags", ())),
                )
                for pattern, entry in facts["images"].items()
            )
        )

    def find(self, reference: ImageReference) -> Entry | None:
        """Only names of the default registry: another registry's `python` may be anything."""
        if not reference.is_default_registry:
            return None
        name = reference.repository.removeprefix("library/")
        return next((entry for entry in self._entries if fnmatchcase(name, entry.pattern)), None)
