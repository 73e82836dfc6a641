"""Finds the files that ship beside the code (guest programs, templates), in a source tree and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
SOURCES = PACKAGE.parent  # what PYTHONPATH needs to import the package


def data_files(name: str) -> Path:
    """The directory of this name: `_data/` inside an installed package, the top of the tree in a checkout."""
    installed = PACKAGE / "_data" / name
    return installed if installed.is_dir() else SOURCES.parent / name
