"""The command line of the interpreter's server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
from pathlib import Path

from interpreter.app import PORT, serve
from interpreter.contexts import Contexts
from interpreter.environment import SandboxEnvironment
from interpreter.languages import available


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="interpreter", description="Runs cells of code for E2B code-interpreter SDKs."
    )
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=PORT, help="0 picks a free one and prints it")
    parser.add_argument("--workdir", type=Path, default=Path("/home/user"), help="where contexts work by default")
    parser.add_argument("--state", type=Path, default=Path("/run/interpreter"), help="sockets and keys of kernels")
    parser.add_argument("--python", default=os.environ.get("INTERPRETER_PYTHON", "/usr/bin/python3"))
    parser.add_argument("--envd", default="http://127.0.0.1:49983", help="whom to ask for the sandbox's variables")
    parser.add_argument("--boot", default="python,javascript", help="languages whose kernels start at once")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    contexts = Contexts(
        languages=available(options.python),
        environment=SandboxEnvironment(options.envd),
        state=options.state,
        workdir=options.workdir,
    )
    boot = [name for name in options.boot.split(",") if name]
    asyncio.run(serve(contexts, host=options.host, port=options.port, boot=boot))


if __name__ == "__main__":
    main()
