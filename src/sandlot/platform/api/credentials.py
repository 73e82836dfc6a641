"""Where a request carries its key: in a header, or for WebSockets of browsers in a subprotocol."""

from __future__ import annotations

from starlette.types import Scope

SUBPROTOCOL = "sandlot"  # what the server chooses when a client offers subprotocols
KEY_SUBPROTOCOL = "sandlot.key."  # followed by the key; never chosen, so the key is not sent back


def secret_of(scope: Scope) -> str | None:
    """The key of `X-API-KEY` (Browserbase's clients: `X-BB-API-Key`), else of `Authorization: Bearer`, else of a WebSocket's subprotocols.

    A browser's WebSocket can send no headers, but it can offer subprotocols. Keys are not taken from the query:
    addresses end up in logs and histories.
    """
    bearer: str | None = None
    for name, value in scope["headers"]:
        if name in (b"x-api-key", b"x-bb-api-key"):
            return str(value.decode("latin-1"))
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            bearer = value[7:].decode("latin-1").strip()
    if bearer is not None or scope["type"] != "websocket":
        return bearer
    offered: list[str] = scope.get("subprotocols") or []
    keys = [name.removeprefix(KEY_SUBPROTOCOL) for name in offered if name.startswith(KEY_SUBPROTOCOL)]
    return keys[0] if keys else None


def chosen_subprotocol(scope: Scope) -> str | None:
    return SUBPROTOCOL if SUBPROTOCOL in (scope.get("subprotocols") or []) else None
