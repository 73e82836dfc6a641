"""The command line of the interpreter's server."""

from __future__ import annotations

import argparse
import logging
import os
import socket
from pathlib import Path

from interpreter.languages import Language, available, normalize
from interpreter.process import KernelProcess

PORT = 49999


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
    languages = available(options.python)
    boot = [languages[name] for name in map(normalize, filter(None, options.boot.split(","))) if name in languages]
    with socket.create_server((options.host, options.port), backlog=128) as door:
        first = [KernelProcess(language, str(options.workdir), options.state) for language in boot]
        _serve(options, languages, door, first)


def _serve(
    options: argparse.Namespace, languages: dict[str, Language], door: socket.socket, first: list[KernelProcess]
) -> None:
    # Loading these takes as long as starting a kernel, so it happens meanwhile.
    import asyncio

    from interpreter.app import serve
    from interpreter.contexts import Contexts
    from interpreter.environment import SandboxEnvironment

    contexts = Contexts(
        languages=languages,
        environment=SandboxEnvironment(options.envd),
        state=options.state,
        workdir=options.workdir,
    )
    asyncio.run(serve(contexts, door, first))


if __name__ == "__main__":
    main()
