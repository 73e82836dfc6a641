"""Where the tools work: how paths are meant, what a child process gets, how failures of the system are told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastmcp.exceptions import ToolError

from tools.admission import Admission

_NOT_FOR_CHILDREN = frozenset({"VIRTUAL_ENV", "PYTHONHOME", "PYTHONPATH"})


@dataclass(frozen=True, slots=True)
class Workspace:
    home: Path
    state: Path
    admission: Admission

    def path(self, given: str) -> Path:
        """Absolute; relative ones begin at home. Anything the sandbox's user may touch is allowed."""
        if not given or "\0" in given:
            raise ToolError("a path must not be empty and must not hold NUL characters")
        if given == "~" or given.startswith("~/"):
            return self.home / given[2:]
        return Path(os.path.normpath(self.home / given))

    def directory(self, given: str | None) -> Path:
        path = self.path(given) if given else self.home
        if not path.is_dir():
            raise ToolError(f"{path}: there is no such directory")
        return path

    def environment(self) -> dict[str, str]:
        """What child processes get: the server's variables, and those the sandbox was created with."""
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_CHILDREN}
        return {**inherited, **self.admission.variables(), "HOME": str(self.home), "TERM": "xterm-256color"}


@contextmanager
def telling(doing: str, path: Path | str) -> Iterator[None]:
    """Errors of the system become answers that a model can act upon."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"could not {doing} {path}: {(error.strerror or str(error)).lower()}") from error
    except RecursionError as error:
        raise ToolError(f"could not {doing} {path}: it is nested too deeply") from error
