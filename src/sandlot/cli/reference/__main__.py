"""Writes the generated pages without the rest of the command line: `python -m sandlot.cli.reference`."""

from __future__ import annotations

from sandlot.cli.reference import reference

reference()
