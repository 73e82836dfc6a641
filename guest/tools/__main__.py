"""The command line of the tools: serve them, and admit whoever may use them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tools.admission import IDENTITY, STATE, Admission


def main() -> None:
    parser = argparse.ArgumentParser(prog="sandlot-tools", description="The MCP tools of this sandbox.")
    parser.add_argument("--state", type=Path, default=STATE, help="where tokens and lists are kept")
    parser.add_argument("--identity", type=Path, default=IDENTITY, help="the file that holds the sandbox's id")
    actions = parser.add_subparsers(dest="action", required=True)
    serve = actions.add_parser("serve", help="run the server")
    serve.add_argument("--host", default="0.0.0.0")
    serve.add_argument("--port", type=int, default=6060, help="0 picks a free one and prints it")
    serve.add_argument("--home", type=Path, default=Path.home(), help="where relative paths begin")
    serve.add_argument("--mcp-config", type=Path, help="the user's own MCP servers; .mcp.json in the home directory")
    token = actions.add_parser("token", help="print a new token that may use the tools")
    admit = actions.add_parser("admit", help="let in a token that the caller made, by its hash")
    admit.add_argument("sha256", help="of the token, 64 hexadecimal digits")
    viewer = actions.add_parser("admit-viewer", help="let a token look at the screen once, within a minute")
    viewer.add_argument("sha256", help="of the token, 64 hexadecimal digits")
    viewer.add_argument("--control", action="store_true", help="and use mouse and keyboard")
    idle = actions.add_parser("idle", help="print for how many seconds nobody has used the tools")
    idle.add_argument("--port", type=int, default=6060)
    for action in (token, admit):
        action.add_argument("--url", help="where this port is reached from outside")
    options = parser.parse_args()
    if options.action == "serve":
        _serve(options)
        return
    if options.action == "idle":
        _idle(options.port)
        return
    if options.action == "admit-viewer":
        _admit_viewer(options)
        return
    admission = Admission(options.state, options.identity)
    try:
        if options.action == "token":
            print(admission.new_token(os.environ, options.url))
        else:
            admission.admit(options.sha256, os.environ, options.url)
    except (OSError, ValueError) as error:
        sys.exit(f"sandlot-tools: {error}")


def _admit_viewer(options: argparse.Namespace) -> None:
    from tools.viewers import Viewers

    try:
        Viewers(options.state, Admission(options.state, options.identity)).admit(
            options.sha256, control=options.control
        )
    except (OSError, ValueError) as error:
        sys.exit(f"sandlot-tools: {error}")


def _idle(port: int) -> None:
    import http.client
    import json

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        print(json.loads(connection.getresponse().read(4096))["idle_s"])
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        sys.exit(f"sandlot-tools: the server on port {port} does not answer: {error}")
    finally:
        connection.close()


def _serve(options: argparse.Namespace) -> None:
    import asyncio
    import logging

    from tools.app import serve, workspace_at

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    config = options.mcp_config or options.home / ".mcp.json"
    workspace = workspace_at(options.home, options.state, options.identity)
    asyncio.run(serve(workspace, config, options.host, options.port))


if __name__ == "__main__":
    main()
