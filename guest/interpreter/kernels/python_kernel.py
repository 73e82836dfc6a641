"""Starts an IPython kernel that shows results the way the SDKs read them, and leaves no name of ours in the user's cells."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import zmq
from ipykernel.kernelapp import IPKernelApp
from traitlets.config import Config

HERE = Path(__file__).parent


class KernelApp(IPKernelApp):  # type: ignore[misc]  # untyped library
    def init_iopub(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        # A full queue would drop output. Ours is emptied at once, by a server that makes this process wait when it must.
        context.setsockopt(zmq.SNDHWM, 0)
        super().init_iopub(context)


def main() -> None:
    config = Config()
    config.InteractiveShell.colors = "nocolor"
    config.InlineBackend.figure_formats = {"png"}
    config.HistoryManager.enabled = False  # a database on disk that nobody reads
    config.IPKernelApp.quiet = True
    app = KernelApp.instance(config=config)
    app.initialize()
    load("python_formats").install(app.shell, charts=lambda: load("python_charts"))
    app.start()


def load(name: str) -> ModuleType:
    """A file of this directory, without making the directory importable from cells."""
    spec = importlib.util.spec_from_file_location(f"_interpreter_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
