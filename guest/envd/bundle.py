"""Loads the modules that start-up needs from one file: a hundred small files take long to open where file access is guarded.

Run as a script, it is the way the guest runtime starts the daemon.
"""

from __future__ import annotations

import marshal
import sys
from _frozen_importlib import ModuleSpec  # what importlib.machinery exports
from _frozen_importlib_external import ExtensionFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

MODULE, PACKAGE, EXTENSION = 0, 1, 2


class Bundle:
    """A finder and loader: each module is its kind, and its compiled code or the file name of its library."""

    def __init__(self, library: str) -> None:
        self._library = library
        with open(f"{library}/bundle", "rb", buffering=0) as file:
            self._modules: dict[str, tuple[int, bytes | str]] = marshal.loads(file.read())

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        kind, content = self._modules[name]
        if kind == EXTENSION:
            origin = f"{self._library}/lib-dynload/{content!s}"
            return ModuleSpec(name, ExtensionFileLoader(name, origin), origin=origin)
        spec = ModuleSpec(name, self, origin=f"{name}.py")  # type: ignore[arg-type]
        if kind == PACKAGE:  # its rarer parts are files
            spec.submodule_search_locations = [f"{self._library}/{name.replace('.', '/')}"]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        code = self._modules.pop(module.__name__)[1]
        assert isinstance(code, bytes)
        exec(marshal.loads(code), module.__dict__)


if __name__ == "__main__":
    # After what is built in, before the file system.
    sys.meta_path.insert(2, Bundle(__file__.rpartition("/")[0]))
    from envd.__main__ import run

    run()
