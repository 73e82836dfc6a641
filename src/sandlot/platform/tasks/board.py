"""The board for agents of tasks: MCP tools at `/mcp` of their tunnel, for the credential of their own task. They reach tasks below it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable

from sandlot.platform.core.model import Caller, Scope
from sandlot.platform.core.tasks import Task
from sandlot.platform.tunnel.routes import Message, Receive, RouteApp, Send
from sandlot.platform.tunnel.routes import Scope as HttpScope

ROUTE = "mcp"
INSIDE = f"http://127.0.0.1:6070/{ROUTE}"  # where the tunnel ends in a sandbox
URL, TOKEN = "TASK_BOARD_URL", "TASK_BOARD_TOKEN"
MAX_BODY = 1 << 20
Serve = Callable[[HttpScope, Receive, Send, Caller, str], Awaitable[None]]  # the last one is the task whose agent asks


class TaskBoard:
    """`serve` is set by whoever has the tools: they stand on tasks, not tasks on them."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.serve: Serve | None = None

    def credential(self, task: str) -> str:
        """It opens the board of this task, and nothing else."""
        return "slm_" + hmac.new(self._secret.encode(), f"board:{task}".encode(), hashlib.sha256).hexdigest()[:40]

    def environment(self, task: Task) -> dict[str, str]:
        """How the task's agent finds it."""
        return {URL: INSIDE, TOKEN: self.credential(task.id)}

    def route(self, task: Task) -> RouteApp:
        expected = f"Bearer {self.credential(task.id)}".encode()
        caller = Caller(user_id=task.user_id, scopes=frozenset({Scope.READ, Scope.WRITE}))

        async def app(scope: HttpScope, receive: Receive, send: Send) -> None:
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, expected):
                return await _refuse(send, 401, f"send the value of {TOKEN} as Authorization: Bearer")
            if scope["path"] != "/" or self.serve is None:
                return await _refuse(send, 404, f"the board is at {INSIDE}")
            body = await _body(receive)
            if body is None:
                return await _refuse(send, 413, f"a request to the board has at most {MAX_BODY >> 20} MiB")
            await self.serve(scope, _once(body, receive), send, caller, task.id)

        return app


async def _body(receive: Receive) -> bytes | None:
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        found += message.get("body", b"")
        if len(found) > MAX_BODY:
            return None
        if not message.get("more_body", False):
            return bytes(found)


def _once(body: bytes, receive: Receive) -> Receive:
    """A body that was read, then what comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return waiting.pop() if waiting else await receive()

    return next_message


async def _refuse(send: Send, status: int, words: str) -> None:
    body = f"{words}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
