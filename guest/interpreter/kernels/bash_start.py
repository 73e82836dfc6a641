"""Starts a Bash kernel that does not pause before every line it types, and shows what cells print as they print it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pexpect


class PromptSpawn(pexpect.spawn):  # type: ignore[misc]  # untyped library
    """Pexpect waits 50 ms before it sends, for programs that turn off echo late; bash here is started without echo."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.delaybeforesend = None


pexpect.spawn = PromptSpawn

# Code is typed in: a tab is a tab. And the terminal adds no carriage returns, some of which the kernel would leave in.
SETUP = "bind 'set disable-completion on'; stty -onlcr"

if __name__ == "__main__":
    from bash_kernel.kernel import BashKernel

    class PlainBashKernel(BashKernel):  # type: ignore[misc]  # untyped library
        def _start_bash(self) -> None:
            super()._start_bash()  # also after a cell that ends bash
            self.bashwrapper.run_command(SETUP)

    spec = importlib.util.spec_from_file_location("_interpreter_kernel", Path(__file__).with_name("python_kernel.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.KernelApp.launch_instance(kernel_class=PlainBashKernel)
