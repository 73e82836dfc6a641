"""An MCP server of a user's own, for tests: over stdio, or over HTTP on the port that it is given."""

import json
import os
import sys

from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_http_headers

server = FastMCP("demo")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def steps(context: Context) -> str:
    """Takes three steps and tells of each."""
    for step in range(3):
        await context.report_progress(step, 3, f"step {step}")
    return "done"


@server.tool
async def surroundings() -> dict[str, str]:
    """The variables and headers it can see."""
    return {**os.environ, **get_http_headers(include_all=True)}


@server.tool
async def flood() -> str:
    """More than anybody wants to read."""
    return "x" * 1_000_000


@server.tool
async def end() -> str:
    """Ends this server, in the middle of a call."""
    os._exit(3)


@server.resource("memo:///today", mime_type="text/markdown")
async def today() -> str:
    """What is on for today."""
    return "# Rest"


@server.resource("memo:///picture", mime_type="image/png")
async def picture() -> bytes:
    """Nothing to see."""
    return b"\x89PNG"


@server.resource("memo:///of/{day}{?short}")
async def memo(day: str, short: bool = False) -> str:
    """What is on for a day."""
    return f"{day}: work" if not short else f"{day}: w"


@server.resource("seen://headers")
async def seen() -> str:
    """The headers of whoever reads this."""
    return json.dumps(get_http_headers(include_all=True))


@server.prompt
async def greet(name: str, style: str = "kindly") -> str:
    """How to greet somebody."""
    return f"Greet {name} {style}."


if len(sys.argv) > 1:
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
else:
    server.run(show_banner=False)
