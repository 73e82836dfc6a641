"""Who calls a tool of the MCP endpoint, and how what goes wrong is told to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from sandlot.platform.api.deps import CALLER
from sandlot.platform.core.errors import PlatformError
from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.identity.keys import require

USER = "x-sandlot-user"  # whom an admin's key acts for


@contextmanager
def asking(context: Context[Any, Any], scope: Scope) -> Iterator[tuple[Caller, str]]:
    """The caller, who needs that scope, and the user it acts for. Errors of the platform become tool errors."""
    request: Any = context.request_context.request
    caller: Caller = request.scope[CALLER]
    try:
        require(caller, scope)
        yield caller, caller.user_id or request.headers.get(USER) or "admin"
    except PlatformError as error:
        raise ToolError(str(error)) from error
