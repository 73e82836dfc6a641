"""A small client of the platform: `async with Client(url, key) as client: sandbox = await client.create(session_id="mine")`."""

from sandlot.client.client import Client, Sandbox
from sandlot.client.errors import Busy, ClientError, NotFound, Unauthorized, Unavailable
from sandlot.client.records import CommandOutput, CommandResult, Event, QueuePosition, SandboxInfo, ToolsAccess

__all__ = [
    "Busy",
    "Client",
    "ClientError",
    "CommandOutput",
    "CommandResult",
    "Event",
    "NotFound",
    "QueuePosition",
    "Sandbox",
    "SandboxInfo",
    "ToolsAccess",
    "Unauthorized",
    "Unavailable",
]
