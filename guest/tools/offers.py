"""What the user's own MCP servers offer, as ours: tools, prompts and resources under names that say whose they are."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import contextvars
import json
from collections.abc import Sequence
from typing import Any

from fastmcp.exceptions import FastMCPError, PromptError, ResourceError, ToolError
from fastmcp.prompts import Message, Prompt, PromptResult
from fastmcp.prompts.base import PromptArgument
from fastmcp.resources import Resource, ResourceContent, ResourceResult, ResourceTemplate
from fastmcp.server.dependencies import get_context
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from pydantic import PrivateAttr, ValidationError

from tools.connections import Connection
from tools.texts import cut

MOST_TEXT = 200_000
MOST_DESCRIPTION = 20_000
MOST_BINARY = 16 << 20  # characters, of base64 where it is that
SEPARATOR = "__"  # no tool of ours has it in its name


class ProxiedTool(Tool):
    _connection: Connection = PrivateAttr()
    _remote: str = PrivateAttr()

    def of(self, connection: Connection, remote: str) -> ProxiedTool:
        self._connection, self._remote = connection, remote
        return self

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        report = _passing_on()
        answer = await self._connection.ask(
            lambda client: client.call_tool_mcp(self._remote, dict(arguments), progress_handler=report), ToolError
        )
        return ToolResult(
            content=[_bounded(part, ToolError) for part in answer.content],
            structured_content=_bounded_json(answer.structured_content),
            is_error=bool(answer.is_error),
        )


class ProxiedPrompt(Prompt):
    _connection: Connection = PrivateAttr()
    _remote: str = PrivateAttr()

    def of(self, connection: Connection, remote: str) -> ProxiedPrompt:
        self._connection, self._remote = connection, remote
        return self

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        answer = await self._connection.ask(
            lambda client: client.get_prompt_mcp(self._remote, arguments or {}), PromptError
        )
        messages = [Message(_bounded(one.content, PromptError), one.role) for one in answer.messages]
        return PromptResult(messages, description=answer.description)


class ProxiedResource(Resource):
    _connection: Connection = PrivateAttr()
    _remote: str = PrivateAttr()

    def of(self, connection: Connection, remote: str) -> ProxiedResource:
        self._connection, self._remote = connection, remote
        return self

    async def read(self) -> ResourceResult:
        answer = await self._connection.ask(lambda client: client.read_resource_mcp(self._remote), ResourceError)
        return ResourceResult([_content(part) for part in answer.contents])


def prefix(server: str) -> str:
    """What the names of a server's tools and prompts begin with."""
    return f"{server}{SEPARATOR}"


def scheme(server: str) -> str:
    """What the addresses of a server's resources begin with: its name, as far as addresses can begin with it."""
    name = server.lower().replace("_", ".")
    return f"{name}+" if name[0].isalpha() else f"mcp.{name}+"


def tools(connection: Connection) -> Sequence[ProxiedTool]:
    server = connection.plan.name
    return [
        ProxiedTool(
            name=f"{prefix(server)}{tool.name}",
            title=tool.title,
            description=cut(tool.description or "", MOST_DESCRIPTION),
            parameters=tool.input_schema,
            annotations=tool.annotations,
        ).of(connection, tool.name)
        for tool in connection.tools
    ]


def tool(connection: Connection, name: str) -> ProxiedTool | None:
    """By its full name. While the server is not there, any name will do: the call tells what is wrong with it."""
    if connection.state != "ready":
        return ProxiedTool(name=name, parameters={"type": "object"}).of(connection, name)
    return next((one for one in tools(connection) if one.name == name), None)


async def prompts(connection: Connection) -> Sequence[ProxiedPrompt]:
    found = await connection.listed(lambda client: client.list_prompts())
    return [
        ProxiedPrompt(
            name=f"{prefix(connection.plan.name)}{one.name}",
            title=one.title,
            description=cut(one.description or "", MOST_DESCRIPTION),
            arguments=[
                PromptArgument(name=given.name, description=given.description, required=bool(given.required))
                for given in one.arguments or []
            ],
        ).of(connection, one.name)
        for one in found
    ]


def prompt(connection: Connection, name: str) -> ProxiedPrompt:
    """By its full name; whether there is one, its server says when it is asked."""
    return ProxiedPrompt(name=name).of(connection, name.removeprefix(prefix(connection.plan.name)))


async def resources(connection: Connection) -> Sequence[ProxiedResource]:
    made = []
    for one in await connection.listed(lambda client: client.list_resources()):
        with contextlib.suppress(ValidationError):  # what is no address cannot be asked for
            resource = ProxiedResource(uri=f"{scheme(connection.plan.name)}{one.uri}", **_described(connection, one))
            made.append(resource.of(connection, str(one.uri)))
    return made


async def templates(connection: Connection) -> Sequence[ResourceTemplate]:
    """To be listed only: every address that begins as the server's do is its own to know."""
    return [
        ResourceTemplate(
            uri_template=f"{scheme(connection.plan.name)}{one.uri_template}",
            parameters={},
            **_described(connection, one),
        )
        for one in await connection.listed(lambda client: client.list_resource_templates())
    ]


def resource(connection: Connection, uri: str) -> ProxiedResource | None:
    """By its full address; whether there is one, its server says when it is asked."""
    try:
        return ProxiedResource(uri=uri).of(connection, uri[len(scheme(connection.plan.name)) :])
    except ValidationError:
        return None


def _described(connection: Connection, one: Any) -> dict[str, Any]:
    return {
        "name": f"{prefix(connection.plan.name)}{one.name}",
        "title": one.title,
        "description": cut(one.description or "", MOST_DESCRIPTION),
        "mime_type": one.mime_type,
        "annotations": one.annotations,
    }


def _content(part: Any) -> ResourceContent:
    text, blob = getattr(part, "text", None), getattr(part, "blob", None) or ""
    if len(text or blob) > MOST_BINARY:
        raise ResourceError("the resource is too large to pass on")
    try:
        return ResourceContent(text if text is not None else base64.b64decode(blob), mime_type=part.mime_type)
    except binascii.Error as error:
        raise ResourceError(f"the MCP server says that {part.uri} is base64, but it is not") from error


def _passing_on() -> Any:
    """Progress of the other server is progress of the caller's own call."""
    context, here = get_context(), contextvars.copy_context()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        with contextlib.suppress(Exception):  # the caller may have gone, and need not care
            await asyncio.create_task(context.report_progress(progress, total, message), context=here)

    return report


def _bounded(part: Any, failure: type[FastMCPError]) -> Any:
    if getattr(part, "type", "") == "text":
        return part.model_copy(update={"text": cut(part.text, MOST_TEXT)})
    data = getattr(part, "data", None) or getattr(getattr(part, "resource", None), "blob", None) or ""
    text = getattr(getattr(part, "resource", None), "text", None) or ""
    if len(data) > MOST_BINARY or len(text) > MOST_TEXT:
        raise failure("the answer of the MCP server is too large to pass on")
    return part


def _bounded_json(value: dict[str, Any] | None) -> dict[str, Any] | None:
    return value if value is None or len(json.dumps(value, default=str)) <= MOST_TEXT else None
